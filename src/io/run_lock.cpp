#include "io/run_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <system_error>

namespace lathe::io {

namespace {

[[noreturn]] void fail(std::string_view action, const std::string& path) {
  throw UserError(fmt::format("cannot {} {}: {}", action, path, std::generic_category().message(errno)),
                  Exit::cannot_create);
}

[[noreturn]] void refuse(const std::string& path, const std::string& holder) {
  throw UserError(
      fmt::format("{} is in use by another run: {} (host:pid:job); wait for it, stop it, or choose another --out",
                  parent_path(path), holder.empty() ? "unknown" : holder),
      Exit::cannot_create);
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

std::string read_holder(int fd) {
  std::array<char, 512> text;
  ssize_t n;
  do n = ::pread(fd, text.data(), text.size(), 0);
  while (n < 0 && errno == EINTR);
  std::string holder(text.data(), static_cast<size_t>(n > 0 ? n : 0));
  for (char& c : holder)
    if (c < ' ' || c > '~') c = ' ';  // it goes into messages
  return holder.substr(0, holder.find(' '));
}

void write_holder(int fd, const std::string& path, const std::string& holder) {
  const std::string line = holder.empty() ? "" : holder + "\n";
  if (::ftruncate(fd, 0) != 0 || ::pwrite(fd, line.data(), line.size(), 0) != static_cast<ssize_t>(line.size()))
    fail("write", path);
}

// A new open makes network file systems ask the server; an old descriptor may see cached times.
struct timespec modified(const std::string& path) {
  struct stat s {};
  const int fd = ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd >= 0) {
    ::fstat(fd, &s);
    ::close(fd);
  }
  return s.st_mtim;
}

}  // namespace

RunLock::RunLock(const std::string& dir, RunLockOptions options)
    : path_(join_path(dir, ".lock")), options_(std::move(options)) {
  if (options_.host.empty()) options_.host = host_name();
  holder_ = fmt::format("{}:{}:{}", options_.host, ::getpid(), options_.job_id);
  fd_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
  if (fd_ < 0) fail("open", path_);
  try {
    acquire();
    write_holder(fd_, path_, holder_);
  } catch (...) {
    ::close(fd_);
    throw;
  }
  heartbeat_ = std::thread([this] { beat(); });
}

void RunLock::acquire() {
  bool flocked = false;
  if (options_.use_flock) {
    int r;
    do r = ::flock(fd_, LOCK_EX | LOCK_NB);
    while (r != 0 && errno == EINTR);
    if (r != 0 && errno == EWOULDBLOCK) refuse(path_, read_holder(fd_));
    flocked = r == 0;  // otherwise this file system has none: the heartbeat alone decides
  }
  taken_over_from_ = read_holder(fd_);
  if (taken_over_from_.empty()) return;
  const bool same_host = taken_over_from_.starts_with(options_.host + ":");
  if (flocked && same_host) return;
  if (holder_moves()) refuse(path_, taken_over_from_);
}

bool RunLock::holder_moves() const {
  using Clock = std::chrono::steady_clock;
  const struct timespec first = modified(path_);
  const auto deadline = Clock::now() + options_.patience;
  while (Clock::now() < deadline) {
    std::this_thread::sleep_for(std::min<std::chrono::milliseconds>(options_.patience / 10, options_.heartbeat));
    const struct timespec now = modified(path_);
    if (now.tv_sec != first.tv_sec || now.tv_nsec != first.tv_nsec) return true;
  }
  return false;
}

void RunLock::beat() {
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, options_.heartbeat, [this] { return stop_; })) ::futimens(fd_, nullptr);
}

RunLock::~RunLock() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  heartbeat_.join();
  if (::ftruncate(fd_, 0) != 0) {
    // The name stays; the next run on this host takes over at once, one elsewhere after its patience.
  }
  ::close(fd_);
}

bool is_run_alive(const std::string& dir, const RunLockOptions& options) {
  const std::string path = join_path(dir, ".lock");
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return false;
  const std::string holder = read_holder(fd);
  ::close(fd);
  if (holder.empty()) return false;
  const std::string host = (options.host.empty() ? host_name() : options.host) + ":";
  if (holder.starts_with(host)) {
    const long pid = std::strtol(holder.c_str() + host.size(), nullptr, 10);
    return pid > 0 && (::kill(static_cast<pid_t>(pid), 0) == 0 || errno == EPERM);
  }
  struct timespec now {};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return now.tv_sec - modified(path).tv_sec <=
         std::chrono::duration_cast<std::chrono::seconds>(options.patience).count();
}

}  // namespace lathe::io
