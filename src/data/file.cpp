#include "data/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>

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
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
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

}  // namespace

std::vector<std::byte> read_file(const std::string& path, int64_t max_bytes, const std::string& hint) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer; it has no effect on regular files.
  const Descriptor file(with_retries([&] { return ::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC); }));
  if (file.get() < 0) {
    const int error = errno;
    const bool missing = error == ENOENT || error == ENOTDIR;
    throw UserError(fmt::format("{}: {}{}{}", path, missing ? "no such file" : std::strerror(error),
                                hint.empty() ? "" : "; ", hint),
                    missing ? Exit::missing_input : Exit::io_error);
  }
  struct stat info {};
  if (::fstat(file.get(), &info) != 0)
    throw UserError(fmt::format("{}: {}", path, std::strerror(errno)), Exit::io_error);
  LATHE_USER_CHECK(S_ISREG(info.st_mode), "{}: expected a regular file", path);
  const int64_t size = info.st_size;
  LATHE_USER_CHECK(size <= max_bytes, "{}: expected at most {} bytes, got {}", path, max_bytes, size);

  std::vector<std::byte> content(static_cast<size_t>(size));
  int64_t done = 0;
  while (done < size) {
    const auto n = with_retries(
        [&] { return ::pread(file.get(), content.data() + done, static_cast<size_t>(size - done), done); });
    if (n < 0) {
      throw UserError(fmt::format("{}: read failed at byte {}: {}", path, done, std::strerror(errno)), Exit::io_error);
    }
    LATHE_USER_CHECK(n > 0, "{}: expected {} bytes, got {}: the file became shorter while it was read", path, size,
                     done);
    done += n;
  }
  return content;
}

bool is_regular_file(const std::string& path) {
  struct stat info {};
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

}  // namespace lathe::data
