// PosixFs: the raw layer of fs.h on the real system calls.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstdio>
#include <limits>

#include "io/files/fs.h"

namespace lathe::io {

namespace {

int64_t result(int64_t value) { return value >= 0 ? value : -static_cast<int64_t>(errno); }

FileInfo to_info(const struct stat& s) {
  using Kind = FileInfo::Kind;
  const Kind kind = S_ISREG(s.st_mode)   ? Kind::regular
                    : S_ISDIR(s.st_mode) ? Kind::directory
                    : S_ISLNK(s.st_mode) ? Kind::symlink
                                         : Kind::other;
  return {.kind = kind, .size = static_cast<int64_t>(s.st_size)};
}

// A path with a NUL inside would name another file than the one meant.
bool has_nul(const std::string& path) { return path.find('\0') != std::string::npos; }

}  // namespace

int64_t PosixFs::open_read(const std::string& path) {
  if (has_nul(path)) return -EINVAL;
  return result(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
}

int64_t PosixFs::create(const std::string& path) {
  if (has_nul(path)) return -EINVAL;
  return result(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666));
}

int64_t PosixFs::open_write(const std::string& path) {
  if (has_nul(path)) return -EINVAL;
  return result(::open(path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
}

int64_t PosixFs::write(int fd, std::span<const std::byte> data) {
  return result(::write(fd, data.data(), data.size()));
}

int64_t PosixFs::seek(int fd, int64_t offset) { return result(::lseek(fd, static_cast<off_t>(offset), SEEK_SET)); }

int64_t PosixFs::read_at(int fd, std::span<std::byte> data, int64_t offset) {
  return result(::pread(fd, data.data(), data.size(), static_cast<off_t>(offset)));
}

int64_t PosixFs::sync(int fd) { return result(::fsync(fd)); }

int64_t PosixFs::close(int fd) { return result(::close(fd)); }

int64_t PosixFs::info_of(int fd, FileInfo& info) {
  struct stat s;
  if (::fstat(fd, &s) != 0) return result(-1);
  info = to_info(s);
  return 0;
}

int64_t PosixFs::info_at(const std::string& path, FileInfo& info) {
  struct stat s;
  if (has_nul(path)) return -EINVAL;
  if (::lstat(path.c_str(), &s) != 0) return result(-1);
  info = to_info(s);
  return 0;
}

int64_t PosixFs::info_behind(const std::string& path, FileInfo& info) {
  struct stat s;
  if (has_nul(path)) return -EINVAL;
  if (::stat(path.c_str(), &s) != 0) return result(-1);
  info = to_info(s);
  return 0;
}

int64_t PosixFs::read_link(const std::string& path, std::string& target) {
  if (has_nul(path)) return -EINVAL;
  target.resize(PATH_MAX);
  const int64_t size = result(::readlink(path.c_str(), target.data(), target.size()));
  target.resize(static_cast<size_t>(size > 0 ? size : 0));
  return size;
}

int64_t PosixFs::make_dir(const std::string& path) {
  return has_nul(path) ? -EINVAL : result(::mkdir(path.c_str(), 0777));
}

int64_t PosixFs::exchange(const std::string& a, const std::string& b) {
  if (has_nul(a) || has_nul(b)) return -EINVAL;
  return result(::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE));
}

int64_t PosixFs::rename(const std::string& from, const std::string& to) {
  return has_nul(from) || has_nul(to) ? -EINVAL : result(::rename(from.c_str(), to.c_str()));
}

int64_t PosixFs::sync_dir(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return result(-1);
  const int64_t r = result(::fsync(fd));
  ::close(fd);
  return r;
}

int64_t PosixFs::list(const std::string& path, std::vector<std::string>& names) {
  names.clear();
  DIR* dir = ::opendir(path.c_str());
  if (!dir) return result(-1);
  errno = 0;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
    errno = 0;
  }
  const int64_t r = -static_cast<int64_t>(errno);
  ::closedir(dir);
  return r;
}

int64_t PosixFs::remove_file(const std::string& path) { return result(::unlink(path.c_str())); }

int64_t PosixFs::remove_dir(const std::string& path) { return result(::rmdir(path.c_str())); }

int64_t PosixFs::free_bytes(const std::string& path) {
  struct statvfs s;
  if (::statvfs(path.c_str(), &s) != 0) return result(-1);
  int64_t bytes;
  if (__builtin_mul_overflow(s.f_bavail, s.f_frsize, &bytes)) return std::numeric_limits<int64_t>::max();
  return bytes;
}

}  // namespace lathe::io
