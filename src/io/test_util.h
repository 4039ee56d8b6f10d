// Helpers of the io tests: temporary directories, hand-made files, error texts, children with limits.
#pragma once

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "io/files/fs.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define LATHE_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define LATHE_TEST_SANITIZED 1
#endif
#endif

namespace lathe::io {

class TempDir {
 public:
  TempDir() {
    std::string path = (std::filesystem::temp_directory_path() / "lathe-io-XXXXXX").string();
    if (!::mkdtemp(path.data())) throw InternalError("mkdtemp failed");
    path_ = path;
  }
  ~TempDir() { std::filesystem::remove_all(path_); }
  TempDir(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return join_path(path_, name); }

 private:
  std::string path_;
};

inline void put_file(const std::string& path, std::string_view bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc)
      .write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

inline std::string get_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string get_file(Fs& fs, const std::string& path) {
  const File file = File::open_read(fs, path);
  std::string text(static_cast<size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

// The text of the UserError that `action` throws; "" if it throws none. Anything else that is thrown fails the test.
template <class Action>
std::string error_of(Action&& action, Exit* exit = nullptr) {
  try {
    action();
  } catch (const UserError& e) {
    if (exit) *exit = e.exit_code();
    return e.what();
  }
  return "";
}

#define EXPECT_CONTAINS(text, part) EXPECT_NE(std::string(text).find(part), std::string::npos) << (text)

// Runs `action` in a child process that may use at most `bytes` more memory than now; true if it returned true.
// Sanitizers reserve address space of their own, so with them only the result is checked.
inline bool run_with_memory_limit(int64_t bytes, const std::function<bool()>& action) {
  const pid_t child = ::fork();
  if (child == 0) {
#ifndef LATHE_TEST_SANITIZED
    int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto limit = static_cast<rlim_t>(pages * ::sysconf(_SC_PAGESIZE) + bytes);
    const struct rlimit r { limit, limit };
    ::setrlimit(RLIMIT_AS, &r);
#else
    (void)bytes;
#endif
    bool ok = false;
    try {
      ok = action();
    } catch (...) {
    }
    ::_exit(ok ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// CPU seconds: does not depend on what else the machine does.
template <class Action>
double cpu_seconds(Action&& action) {
  const std::clock_t begin = std::clock();
  action();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

}  // namespace lathe::io
