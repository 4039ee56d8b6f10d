// FaultFs: passes calls on to another Fs, except where a rule says that the n-th call fails. For tests.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/files/fs.h"

namespace lathe::io {

class FaultFs final : public Fs {
 public:
  // Asked before each call, with the name of the function and the number of the call, from 1.
  // 0: let it pass; -errno: fail with it, doing nothing; kShort: transfer only half (write and read_at; else it
  // passes).
  using Rule = std::function<int64_t(std::string_view call, int64_t n)>;
  static constexpr int64_t kShort = 1;

  FaultFs(Fs& base, Rule rule) : base_(base), rule_(std::move(rule)) {}
  int64_t calls() const { return calls_; }

  int64_t open_read(const std::string& path) override {
    return pass("open_read", [&] { return base_.open_read(path); });
  }
  int64_t create(const std::string& path) override {
    return pass("create", [&] { return base_.create(path); });
  }
  int64_t open_write(const std::string& path) override {
    return pass("open_write", [&] { return base_.open_write(path); });
  }
  int64_t write(int fd, std::span<const std::byte> data) override {
    const int64_t verdict = ask("write");
    if (verdict < 0) return verdict;
    return base_.write(fd, verdict == kShort ? data.first((data.size() + 1) / 2) : data);
  }
  int64_t seek(int fd, int64_t offset) override {
    return pass("seek", [&] { return base_.seek(fd, offset); });
  }
  int64_t read_at(int fd, std::span<std::byte> data, int64_t offset) override {
    const int64_t verdict = ask("read_at");
    if (verdict < 0) return verdict;
    return base_.read_at(fd, verdict == kShort ? data.first((data.size() + 1) / 2) : data, offset);
  }
  int64_t sync(int fd) override {
    return pass("sync", [&] { return base_.sync(fd); });
  }
  int64_t close(int fd) override {
    const int64_t verdict = ask("close");
    const int64_t r = base_.close(fd);  // the descriptor is gone in any case, as on Linux
    return verdict < 0 ? verdict : r;
  }
  int64_t info_of(int fd, FileInfo& info) override {
    return pass("info_of", [&] { return base_.info_of(fd, info); });
  }
  int64_t info_at(const std::string& path, FileInfo& info) override {
    return pass("info_at", [&] { return base_.info_at(path, info); });
  }
  int64_t info_behind(const std::string& path, FileInfo& info) override {
    return pass("info_behind", [&] { return base_.info_behind(path, info); });
  }
  int64_t read_link(const std::string& path, std::string& target) override {
    return pass("read_link", [&] { return base_.read_link(path, target); });
  }
  int64_t make_dir(const std::string& path) override {
    return pass("make_dir", [&] { return base_.make_dir(path); });
  }
  int64_t rename(const std::string& from, const std::string& to) override {
    return pass("rename", [&] { return base_.rename(from, to); });
  }
  int64_t exchange(const std::string& a, const std::string& b) override {
    return pass("exchange", [&] { return base_.exchange(a, b); });
  }
  int64_t sync_dir(const std::string& path) override {
    return pass("sync_dir", [&] { return base_.sync_dir(path); });
  }
  int64_t list(const std::string& path, std::vector<std::string>& names) override {
    return pass("list", [&] { return base_.list(path, names); });
  }
  int64_t remove_file(const std::string& path) override {
    return pass("remove_file", [&] { return base_.remove_file(path); });
  }
  int64_t remove_dir(const std::string& path) override {
    return pass("remove_dir", [&] { return base_.remove_dir(path); });
  }
  int64_t free_bytes(const std::string& path) override { return base_.free_bytes(path); }

 private:
  int64_t ask(std::string_view call) { return rule_(call, ++calls_); }

  template <class Call>
  int64_t pass(std::string_view name, Call&& call) {
    const int64_t verdict = ask(name);
    return verdict < 0 ? verdict : call();
  }

  Fs& base_;
  Rule rule_;
  int64_t calls_ = 0;
};

}  // namespace lathe::io
