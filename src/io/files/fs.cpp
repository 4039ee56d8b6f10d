#include "io/files/fs.h"

#include <algorithm>
#include <cerrno>
#include <system_error>
#include <utility>

namespace lathe::io {

namespace {

// Reading: a name that cannot be opened is a missing input. Creating: 73, unless the disk itself is the reason.
Exit exit_for(bool reading, int error) {
  switch (error) {
    case ENOENT:
    case EACCES:
    case EPERM:
    case ENOTDIR:
    case ELOOP:
    case EINVAL:
    case ENAMETOOLONG: return reading ? Exit::missing_input : Exit::cannot_create;
    case EEXIST:
    case ENOTEMPTY:
    case EROFS: return Exit::cannot_create;
    default: return Exit::io_error;
  }
}

[[noreturn]] void fail(Fs& fs, bool reading, std::string_view action, const std::string& path, int64_t result) {
  const int error = static_cast<int>(-result);
  std::string message = fmt::format("cannot {} {}: {}", action, path, std::generic_category().message(error));
  const bool disk = error == ENOSPC || error == EDQUOT || error == EFBIG || error == EIO;
  if (!reading && disk) {
    // The path itself may not exist: ask for the directory that should hold it.
    const int64_t free = fs.free_bytes(parent_path(path));
    if (free >= 0) message += fmt::format(" ({} bytes free)", free);
  }
  throw UserError(message, exit_for(reading, error));
}

template <class Call>
int64_t retry(Call&& call) {
  int64_t r;
  do r = call();
  while (r == -EINTR);
  return r;
}

// Some network file systems have no fsync for directories; their metadata operations are synchronous.
bool lacks_sync(int64_t result) { return result == -EINVAL || result == -ENOTSUP; }

constexpr bool kReading = true, kWriting = false;

}  // namespace

File File::open_read(Fs& fs, const std::string& path) {
  const int64_t fd = retry([&] { return fs.open_read(path); });
  if (fd < 0) fail(fs, kReading, "open", path, fd);
  File file(fs, path, static_cast<int>(fd));
  FileInfo info;
  const int64_t r = retry([&] { return fs.info_of(file.fd_, info); });
  if (r < 0) fail(fs, kReading, "stat", path, r);
  LATHE_USER_CHECK(info.kind == FileInfo::Kind::regular, "{}: expected a regular file, got {}", path,
                   info.kind == FileInfo::Kind::directory ? "a directory" : "a device, FIFO or socket");
  return file;
}

File File::create(Fs& fs, const std::string& path) {
  const int64_t fd = retry([&] { return fs.create(path); });
  if (fd < 0) fail(fs, kWriting, "create", path, fd);
  return File(fs, path, static_cast<int>(fd));
}

File File::open_write(Fs& fs, const std::string& path) {
  const int64_t fd = retry([&] { return fs.open_write(path); });
  if (fd < 0) fail(fs, kWriting, "open", path, fd);
  return File(fs, path, static_cast<int>(fd));
}

File::File(File&& other) noexcept : fs_(other.fs_), path_(std::move(other.path_)), fd_(std::exchange(other.fd_, -1)) {}

File& File::operator=(File&& other) noexcept {
  std::swap(fs_, other.fs_);
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  return *this;
}

File::~File() {
  if (fd_ >= 0) fs_->close(fd_);
}

int64_t File::size() const {
  FileInfo info;
  const int64_t r = retry([&] { return fs_->info_of(fd_, info); });
  if (r < 0) fail(*fs_, kReading, "stat", path_, r);
  return info.size;
}

void File::write(std::span<const std::byte> data) {
  while (!data.empty()) {
    const int64_t n = retry([&] { return fs_->write(fd_, data); });
    if (n <= 0) fail(*fs_, kWriting, "write", path_, n < 0 ? n : -EIO);  // no progress and no reason: do not spin
    data = data.subspan(static_cast<size_t>(n));
  }
}

void File::seek(int64_t offset) {
  const int64_t r = retry([&] { return fs_->seek(fd_, offset); });
  if (r < 0) fail(*fs_, kWriting, "seek in", path_, r);
}

void File::read_at(int64_t offset, std::span<std::byte> data) const {
  while (!data.empty()) {
    const int64_t n = retry([&] { return fs_->read_at(fd_, data, offset); });
    if (n < 0) fail(*fs_, kReading, "read", path_, n);
    LATHE_USER_CHECK(n > 0, "{}: the file ends at byte {}, expected {} bytes more", path_, offset, data.size());
    data = data.subspan(static_cast<size_t>(n));
    offset += n;
  }
}

void File::sync() {
  // A failed fsync is never tried again: the kernel may have dropped the dirty pages and would then report success.
  const int64_t r = retry([&] { return fs_->sync(fd_); });
  if (r < 0) fail(*fs_, kWriting, "sync", path_, r);
}

void File::close() {
  // Linux releases the descriptor even when close() fails, so it must not be closed twice.
  const int64_t r = fs_->close(std::exchange(fd_, -1));
  if (r < 0 && r != -EINTR) fail(*fs_, kWriting, "close", path_, r);
}

void make_dir(Fs& fs, const std::string& path) {
  const int64_t r = retry([&] { return fs.make_dir(path); });
  if (r < 0) fail(fs, kWriting, "create directory", path, r);
}

void make_dirs(Fs& fs, const std::string& path) {
  FileInfo info;
  const std::string parent = parent_path(path);
  // A symlink to a directory is as good as a directory here; making it fails with EEXIST, using it works.
  if (retry([&] { return fs.info_at(path, info); }) >= 0) {
    // A process killed in this function may have made this directory, the last of its chain, without the sync below. A
    // parent that may not be read is not ours, and then neither is the new name in it.
    const int64_t r = retry([&] { return fs.sync_dir(parent); });
    if (r < 0 && r != -EACCES && !lacks_sync(r)) fail(fs, kWriting, "sync directory", parent, r);
    return;
  }
  if (parent != path) make_dirs(fs, parent);
  const int64_t r = retry([&] { return fs.make_dir(path); });
  if (r == -EEXIST) return;  // another process was quicker
  if (r < 0) fail(fs, kWriting, "create directory", path, r);
  sync_dir(fs, parent);
}

std::string make_new_dir(Fs& fs, const std::string& path) {
  const std::string parent = parent_path(path);
  make_dirs(fs, parent);
  std::string name = path;
  for (int64_t number = 2;; ++number) {
    const int64_t r = retry([&] { return fs.make_dir(name); });
    if (r >= 0) break;
    if (r != -EEXIST) fail(fs, kWriting, "create directory", name, r);
    name = fmt::format("{}-{}", path, number);
  }
  sync_dir(fs, parent);
  return name;
}

void rename_path(Fs& fs, const std::string& from, const std::string& to) {
  const int64_t r = retry([&] { return fs.rename(from, to); });
  if (r < 0) fail(fs, kWriting, fmt::format("rename {} to", from), to, r);
}

bool exchange_paths(Fs& fs, const std::string& a, const std::string& b) {
  const int64_t r = retry([&] { return fs.exchange(a, b); });
  if (r == -EINVAL || r == -ENOSYS || r == -EOPNOTSUPP) return false;
  if (r < 0) fail(fs, kWriting, fmt::format("exchange {} with", a), b, r);
  return true;
}

void sync_dir(Fs& fs, const std::string& path) {
  const int64_t r = retry([&] { return fs.sync_dir(path); });
  if (r < 0 && !lacks_sync(r)) fail(fs, kWriting, "sync directory", path, r);
}

std::vector<std::string> list_dir(Fs& fs, const std::string& path) {
  std::vector<std::string> names;
  const int64_t r = retry([&] { return fs.list(path, names); });
  if (r < 0) fail(fs, kReading, "list", path, r);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<FileInfo> info_at(Fs& fs, const std::string& path) {
  FileInfo info;
  const int64_t r = retry([&] { return fs.info_at(path, info); });
  if (r == -ENOENT || r == -ENOTDIR) return std::nullopt;
  if (r < 0) fail(fs, kReading, "stat", path, r);
  return info;
}

std::optional<FileInfo> info_behind(Fs& fs, const std::string& path) {
  FileInfo info;
  const int64_t r = retry([&] { return fs.info_behind(path, info); });
  if (r == -ENOENT || r == -ENOTDIR) return std::nullopt;
  if (r < 0) fail(fs, kWriting, "stat", path, r);
  return info;
}

std::string behind_links(Fs& fs, std::string path) {
  constexpr int kMostLinks = 40;  // as the kernel has it
  for (int i = 0; i < kMostLinks; ++i) {
    const auto info = info_at(fs, path);
    if (!info || info->kind != FileInfo::Kind::symlink) return path;
    std::string target;
    const int64_t r = retry([&] { return fs.read_link(path, target); });
    if (r < 0) fail(fs, kReading, "read the link", path, r);
    path = target.starts_with('/') ? target : join_path(parent_path(path), target);
  }
  fail(fs, kWriting, "follow", path, -ELOOP);
}

void remove_tree(Fs& fs, const std::string& path) {
  const auto info = info_at(fs, path);
  if (!info) return;
  const bool directory = info->kind == FileInfo::Kind::directory;
  if (directory)
    for (const std::string& name : list_dir(fs, path)) remove_tree(fs, join_path(path, name));
  const int64_t r = retry([&] { return directory ? fs.remove_dir(path) : fs.remove_file(path); });
  if (r < 0 && r != -ENOENT) fail(fs, kWriting, "remove", path, r);
}

std::string join_path(std::string_view dir, std::string_view name) {
  if (dir.empty()) return std::string(name);
  return fmt::format("{}{}{}", dir, dir.back() == '/' ? "" : "/", name);
}

std::string parent_path(const std::string& path) {
  std::string_view p = path;
  while (p.size() > 1 && p.back() == '/') p.remove_suffix(1);
  const size_t slash = p.rfind('/');
  if (slash == std::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(p.substr(0, slash));
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 200 && name[0] != '.' && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

}  // namespace lathe::io
