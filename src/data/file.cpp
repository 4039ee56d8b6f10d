#include "data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/error.h"

namespace lathe::data {
namespace {

constexpr int kRetries = 3;

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) ::close(fd_);
  }
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

bool is_transient(int error) { return error == EIO || error == ESTALE || error == EAGAIN; }

// Calls f until it succeeds or the error is not worth another try; the result is f's last one, errno included.
template <class F>
auto with_retries(F f) {
  for (int attempt = 0;; ++attempt) {
    const auto result = f();
    if (result >= 0) return result;
    if (errno == EINTR) {
      --attempt;
      continue;
    }
    if (!is_transient(errno) || attempt == kRetries) return result;
    std::this_thread::sleep_for(std::chrono::milliseconds(100 << (2 * attempt)));
  }
}

const char* kind_text(mode_t mode) {
  return S_ISREG(mode) ? nullptr : S_ISDIR(mode) ? "a directory" : "a FIFO, device or socket";
}

struct Opened {
  Descriptor file;
  int64_t bytes;
};

Opened open_regular(const std::string& path, const std::string& hint) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files.
  const int fd = with_retries([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); });
  if (fd < 0) {
    const int error = errno;
    const bool missing = error == ENOENT || error == ENOTDIR;
    throw UserError(fmt::format("{}: {}{}{}", path, missing ? "no such file" : std::strerror(error),
                                hint.empty() ? "" : "; ", hint),
                    missing ? Exit::missing_input : Exit::io_error);
  }
  Opened out{Descriptor(fd), 0};
  struct stat info {};
  if (::fstat(fd, &info) != 0) throw UserError(fmt::format("{}: {}", path, std::strerror(errno)), Exit::io_error);
  const char* other = kind_text(info.st_mode);
  LATHE_USER_CHECK(!other, "{}: expected a regular file, got {}", path, other);
  out.bytes = info.st_size;
  return out;
}

std::vector<std::byte> read_bytes(const Descriptor& file, const std::string& path, int64_t bytes) {
  std::vector<std::byte> content(static_cast<size_t>(bytes));
  int64_t done = 0;
  while (done < bytes) {
    const auto n = with_retries(
        [&] { return ::pread(file.get(), content.data() + done, static_cast<size_t>(bytes - done), done); });
    if (n < 0) {
      throw UserError(fmt::format("{}: read failed at byte {}: {}", path, done, std::strerror(errno)), Exit::io_error);
    }
    LATHE_USER_CHECK(n > 0, "{}: expected {} bytes, got {}: the file became shorter while it was read", path, bytes,
                     done);
    done += n;
  }
  return content;
}

}  // namespace

std::vector<std::byte> read_file(const std::string& path, int64_t max_bytes, const std::string& hint) {
  const Opened opened = open_regular(path, hint);
  LATHE_USER_CHECK(opened.bytes <= max_bytes, "{}: expected at most {} bytes, got {}", path, max_bytes, opened.bytes);
  return read_bytes(opened.file, path, opened.bytes);
}

FileStart read_start(const std::string& path, int64_t bytes, const std::string& hint) {
  const Opened opened = open_regular(path, hint);
  return {read_bytes(opened.file, path, std::min(bytes, opened.bytes)), opened.bytes};
}

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

const char* kind_of_other(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 ? kind_text(info.st_mode) : nullptr;
}

}  // namespace lathe::data
