// CrashFs: a disk in memory that can lose power. For tests.
// The model is POSIX at its least generous: what was written through a descriptor is durable after its sync(), names
// after sync_dir() of their parent; of everything later, any subset survives, and a surviving write may be torn or
// garbage. No byte of a file is written twice. A rename within one directory is atomic. Calls that change something are
// counted; from call `crash_at` on (1-based), nothing has an effect and every call fails with EIO (a write that is the
// crashing call leaves its first half), so that the code under test unwinds as on a dead disk. Then `reboot` gives the
// disk that the next process finds.
#pragma once

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "io/files/fs.h"

namespace lathe::io {

class CrashFs final : public Fs {
 public:
  enum class Loss { none, all_unsynced, random };  // none: the process was killed, the kernel lives on

  CrashFs() : root_(std::make_shared<Node>()) { root_->directory = true; }

  void crash_at(int64_t call) { crash_at_ = call; }
  int64_t calls() const { return calls_; }
  bool crashed() const { return calls_ >= crash_at_; }

  CrashFs reboot(Loss loss, uint64_t seed = 0) const {
    std::mt19937_64 rng(seed);
    CrashFs next;
    next.root_ = survive(*root_, loss, rng);
    return next;
  }

  int64_t open_read(const std::string& path) override {
    if (crashed()) return -EIO;
    const NodePtr node = find(path);
    return node ? add_fd(node) : -ENOENT;
  }

  int64_t create(const std::string& path) override { return add_node(path, std::make_shared<Node>(), /*open=*/true); }

  int64_t open_write(const std::string& path) override { return open_read(path); }

  int64_t write(int fd, std::span<const std::byte> data) override {
    if (crashed()) return -EIO;
    auto& [node, at] = fds_.at(fd);
    const bool dies = !count();
    const auto kept = data.first(dies ? data.size() / 2 : data.size());
    if (!kept.empty()) node->pending.push_back({fd, at, kept.size()});
    put(node->bytes, at, kept);
    at += kept.size();
    return dies ? -EIO : static_cast<int64_t>(data.size());
  }

  int64_t seek(int fd, int64_t offset) override {
    if (crashed()) return -EIO;
    fds_.at(fd).at = static_cast<size_t>(offset);
    return offset;
  }

  int64_t read_at(int fd, std::span<std::byte> data, int64_t offset) override {
    if (crashed()) return -EIO;
    const Node& node = *fds_.at(fd).node;
    const auto size = static_cast<int64_t>(node.bytes.size());
    const int64_t n = std::clamp<int64_t>(size - offset, 0, static_cast<int64_t>(data.size()));
    std::copy_n(node.bytes.begin() + std::min(offset, size), n, data.begin());
    return n;
  }

  int64_t sync(int fd) override {
    if (!count()) return -EIO;
    Node& node = *fds_.at(fd).node;
    for (const Write& w : node.pending)
      if (w.fd == fd) put(node.durable, w.offset, std::span(node.bytes).subspan(w.offset, w.size));
    std::erase_if(node.pending, [&](const Write& w) { return w.fd == fd; });
    return 0;
  }

  int64_t close(int fd) override {
    fds_.erase(fd);
    return count() ? 0 : -EIO;
  }

  int64_t info_of(int fd, FileInfo& info) override {
    if (crashed()) return -EIO;
    info = info_of_node(*fds_.at(fd).node);
    return 0;
  }

  int64_t info_at(const std::string& path, FileInfo& info) override {
    if (crashed()) return -EIO;
    const NodePtr node = find(path);
    if (!node) return -ENOENT;
    info = info_of_node(*node);
    return 0;
  }

  int64_t info_behind(const std::string& path, FileInfo& info) override { return info_at(path, info); }
  int64_t read_link(const std::string&, std::string&) override { return -EINVAL; }

  int64_t make_dir(const std::string& path) override {
    auto node = std::make_shared<Node>();
    node->directory = true;
    return add_node(path, node, /*open=*/false);
  }

  int64_t rename(const std::string& from, const std::string& to) override {
    if (crashed()) return -EIO;
    if (parent_path(from) != parent_path(to)) return -EXDEV;
    const NodePtr dir = find(parent_path(from)), node = find(from), target = find(to);
    if (!dir || !node) return -ENOENT;
    if (target && target->directory && !target->names.empty()) return -ENOTEMPTY;
    if (!count()) return -EIO;
    apply(*dir, {.removed = base_name(from), .added = base_name(to), .node = node});
    return 0;
  }

  int64_t exchange(const std::string& a, const std::string& b) override {
    if (crashed()) return -EIO;
    if (!can_exchange_) return -EINVAL;
    if (parent_path(a) != parent_path(b)) return -EXDEV;
    const NodePtr dir = find(parent_path(a)), node = find(a), other = find(b);
    if (!dir || !node || !other) return -ENOENT;
    if (!count()) return -EIO;
    apply(*dir, {.removed = base_name(a), .added = base_name(b), .node = node, .other = other});
    return 0;
  }
  void refuse_exchange() { can_exchange_ = false; }  // as old file systems do

  int64_t sync_dir(const std::string& path) override {
    if (!count()) return -EIO;
    const NodePtr dir = find(path);
    if (!dir) return -ENOENT;
    dir->durable_names = dir->names;
    dir->changes.clear();
    return 0;
  }

  int64_t list(const std::string& path, std::vector<std::string>& names) override {
    if (crashed()) return -EIO;
    const NodePtr dir = find(path);
    if (!dir) return -ENOENT;
    names.clear();
    for (const auto& [name, node] : dir->names) names.push_back(name);
    return 0;
  }

  int64_t remove_file(const std::string& path) override { return remove(path, false); }
  int64_t remove_dir(const std::string& path) override { return remove(path, true); }
  int64_t free_bytes(const std::string&) override { return 1 << 30; }

 private:
  struct Node;
  using NodePtr = std::shared_ptr<Node>;
  struct Change {  // of a directory: what a create, a removal or a rename did to its names
    std::string removed, added;
    NodePtr node;
    NodePtr other = nullptr;  // what an exchange gives the removed name
  };
  struct Write {
    int fd;
    size_t offset, size;
  };
  struct Open {  // a descriptor
    NodePtr node;
    size_t at = 0;  // where the next write begins
  };
  struct Node {
    bool directory = false;
    std::vector<std::byte> bytes;    // as processes see them
    std::vector<std::byte> durable;  // what was synced
    std::vector<Write> pending;      // what was not
    std::map<std::string, NodePtr> names, durable_names;
    std::vector<Change> changes;
  };

  bool count() {  // false: the crash is now or was before
    if (crashed()) return false;
    return ++calls_ < crash_at_;
  }

  static std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

  static FileInfo info_of_node(const Node& node) {
    return {.kind = node.directory ? FileInfo::Kind::directory : FileInfo::Kind::regular,
            .size = static_cast<int64_t>(node.bytes.size())};
  }

  NodePtr find(const std::string& path) const {
    NodePtr node = root_;
    for (size_t at = 0; node && at < path.size();) {
      const size_t slash = std::min(path.find('/', at), path.size());
      if (slash > at) {
        const auto it = node->names.find(path.substr(at, slash - at));
        node = it == node->names.end() ? nullptr : it->second;
      }
      at = slash + 1;
    }
    return node;
  }

  int64_t add_fd(const NodePtr& node) {
    fds_[next_fd_] = {node};
    return next_fd_++;
  }

  static void put(std::vector<std::byte>& to, size_t at, std::span<const std::byte> data) {
    to.resize(std::max(to.size(), at + data.size()));
    std::copy(data.begin(), data.end(), to.begin() + static_cast<std::ptrdiff_t>(at));
  }

  int64_t add_node(const std::string& path, const NodePtr& node, bool open) {
    if (crashed()) return -EIO;
    const NodePtr dir = find(parent_path(path));
    if (!dir) return -ENOENT;
    if (find(path)) return -EEXIST;
    if (!count()) return -EIO;
    apply(*dir, {.removed = "", .added = base_name(path), .node = node});
    return open ? add_fd(node) : 0;
  }

  int64_t remove(const std::string& path, bool directory) {
    if (crashed()) return -EIO;
    const NodePtr node = find(path);
    if (!node) return -ENOENT;
    if (node->directory != directory) return directory ? -ENOTDIR : -EISDIR;
    if (!node->names.empty()) return -ENOTEMPTY;
    if (!count()) return -EIO;
    apply(*find(parent_path(path)), {.removed = base_name(path), .added = "", .node = nullptr});
    return 0;
  }

  static void apply(std::map<std::string, NodePtr>& names, const Change& change) {
    names.erase(change.removed);
    if (!change.node) return;
    // One name per node: a lost earlier change must not leave the node under two names.
    std::erase_if(names,
                  [&](const auto& entry) { return entry.second == change.node || entry.second == change.other; });
    names[change.added] = change.node;
    if (change.other) names[change.removed] = change.other;
  }
  static void apply(Node& dir, const Change& change) {
    apply(dir.names, change);
    dir.changes.push_back(change);
  }

  static NodePtr survive(const Node& node, Loss loss, std::mt19937_64& rng) {
    auto copy = std::make_shared<Node>();
    copy->directory = node.directory;
    if (node.directory) {
      auto names = loss == Loss::none ? node.names : node.durable_names;
      if (loss == Loss::random)
        for (const Change& change : node.changes)
          if (rng() % 2) apply(names, change);
      for (const auto& [name, child] : names) copy->names[name] = survive(*child, loss, rng);
      copy->durable_names = copy->names;
      return copy;
    }
    copy->bytes = loss == Loss::none ? node.bytes : node.durable;
    if (loss == Loss::random) keep_some_writes(node, copy->bytes, rng);
    copy->durable = copy->bytes;
    return copy;
  }

  static void keep_some_writes(const Node& node, std::vector<std::byte>& bytes, std::mt19937_64& rng) {
    for (const Write& w : node.pending) {
      std::vector<std::byte> written(node.bytes.begin() + static_cast<std::ptrdiff_t>(w.offset),
                                     node.bytes.begin() + static_cast<std::ptrdiff_t>(w.offset + w.size));
      size_t kept = w.size;
      switch (rng() % 5) {
        case 0: kept = 0; break;                                    // dropped
        case 1: kept = rng() % w.size; break;                       // torn
        case 2: written[rng() % w.size] ^= std::byte{0x10}; break;  // garbage
        default: break;
      }
      // The length may be durable although the bytes are not.
      std::fill(written.begin() + static_cast<std::ptrdiff_t>(kept), written.end(), std::byte{0});
      const bool is_long = rng() % 2;
      if (kept > 0 || rng() % 2) put(bytes, w.offset, std::span(written).first(is_long ? w.size : kept));
    }
  }

  NodePtr root_;
  std::map<int, Open> fds_;
  int next_fd_ = 3;
  int64_t calls_ = 0;
  int64_t crash_at_ = std::numeric_limits<int64_t>::max();
  bool can_exchange_ = true;
};

}  // namespace lathe::io
