// The file system as the checkpoint and model-file code sees it, in two layers.
// `Fs` is the raw one: one system call per function, so that tests can put a simulated disk (crash_fs.h) or failing
// calls (fault_fs.h) underneath. `File` and the free functions are the checked one that everything else uses: they
// retry EINTR, finish short transfers, and turn failures into UserError with path, reason and free bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lathe::io {

struct FileInfo {
  enum class Kind { regular, directory, symlink, other };
  Kind kind = Kind::other;
  int64_t size = 0;
};

// Every function returns a value >= 0, or -errno. None retries, none completes a short transfer.
class Fs {
 public:
  virtual ~Fs() = default;

  virtual int64_t open_read(const std::string& path) = 0;   // a descriptor; never blocks (FIFO) and follows symlinks
  virtual int64_t create(const std::string& path) = 0;      // a descriptor; fails if anything has that name
  virtual int64_t open_write(const std::string& path) = 0;  // a descriptor of what is there, as it is; follows symlinks
  // From the descriptor's position on, which is 0 first and then behind what was written; bytes written, maybe fewer.
  virtual int64_t write(int fd, std::span<const std::byte> data) = 0;
  virtual int64_t seek(int fd, int64_t offset) = 0;  // sets that position; what is never written reads as 0
  virtual int64_t read_at(int fd, std::span<std::byte> data, int64_t offset) = 0;  // bytes read, 0 at the end
  virtual int64_t sync(int fd) = 0;
  virtual int64_t close(int fd) = 0;
  virtual int64_t info_of(int fd, FileInfo& info) = 0;
  virtual int64_t info_at(const std::string& path, FileInfo& info) = 0;      // of a symlink itself, not of its target
  virtual int64_t info_behind(const std::string& path, FileInfo& info) = 0;  // of what symlinks lead to
  virtual int64_t read_link(const std::string& path, std::string& target) = 0;
  virtual int64_t make_dir(const std::string& path) = 0;
  virtual int64_t rename(const std::string& from, const std::string& to) = 0;
  virtual int64_t exchange(const std::string& a, const std::string& b) = 0;  // their names, at once; see exchange_paths
  virtual int64_t sync_dir(const std::string& path) = 0;
  virtual int64_t list(const std::string& path, std::vector<std::string>& names) = 0;  // without "." and ".."
  virtual int64_t remove_file(const std::string& path) = 0;
  virtual int64_t remove_dir(const std::string& path) = 0;  // must be empty
  virtual int64_t free_bytes(const std::string& path) = 0;  // of the file system that holds an existing path
};

class PosixFs final : public Fs {
 public:
  int64_t open_read(const std::string& path) override;
  int64_t create(const std::string& path) override;
  int64_t open_write(const std::string& path) override;
  int64_t write(int fd, std::span<const std::byte> data) override;
  int64_t seek(int fd, int64_t offset) override;
  int64_t read_at(int fd, std::span<std::byte> data, int64_t offset) override;
  int64_t sync(int fd) override;
  int64_t close(int fd) override;
  int64_t info_of(int fd, FileInfo& info) override;
  int64_t info_at(const std::string& path, FileInfo& info) override;
  int64_t info_behind(const std::string& path, FileInfo& info) override;
  int64_t read_link(const std::string& path, std::string& target) override;
  int64_t make_dir(const std::string& path) override;
  int64_t rename(const std::string& from, const std::string& to) override;
  int64_t exchange(const std::string& a, const std::string& b) override;
  int64_t sync_dir(const std::string& path) override;
  int64_t list(const std::string& path, std::vector<std::string>& names) override;
  int64_t remove_file(const std::string& path) override;
  int64_t remove_dir(const std::string& path) override;
  int64_t free_bytes(const std::string& path) override;
};

// An open file: a regular one, unless open_write() was asked for another. The destructor closes without a check: a
// writer must call close() to know that all went well.
class File {
 public:
  static File open_read(Fs&, const std::string& path);  // UserError unless it is a readable regular file
  static File create(Fs&, const std::string& path);     // UserError if the name exists
  // A file, device or pipe that is there, to write to; waits for the reader of a FIFO.
  static File open_write(Fs&, const std::string& path);
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  ~File();

  const std::string& path() const { return path_; }
  int64_t size() const;                                           // now, from the file system
  void write(std::span<const std::byte> data);                    // all of it, behind what was written
  void seek(int64_t offset);                                      // where the next write begins
  void read_at(int64_t offset, std::span<std::byte> data) const;  // all of it; UserError if the file ends before
  void sync();
  void close();

 private:
  File(Fs& fs, std::string path, int fd) : fs_(&fs), path_(std::move(path)), fd_(fd) {}
  Fs* fs_;
  std::string path_;
  int fd_;
};

void make_dir(Fs&, const std::string& path);   // UserError if it exists
void make_dirs(Fs&, const std::string& path);  // with its parents; each new name is made durable in its parent
// A directory that nobody else has: `path`, or where that name is taken path-2, path-3, ... Returns its name.
std::string make_new_dir(Fs&, const std::string& path);
void rename_path(Fs&, const std::string& from, const std::string& to);
// Each gets the name of the other, at once. False, and nothing is changed: the file system cannot do that.
bool exchange_paths(Fs&, const std::string& a, const std::string& b);
void sync_dir(Fs&, const std::string& path);
std::vector<std::string> list_dir(Fs&, const std::string& path);    // sorted
std::optional<FileInfo> info_at(Fs&, const std::string& path);      // nullopt: nothing of that name
std::optional<FileInfo> info_behind(Fs&, const std::string& path);  // of what symlinks lead to; nullopt: nothing
// The name that a chain of symlinks ends in; nothing need have it. A path that is no symlink is its own.
std::string behind_links(Fs&, std::string path);
void remove_tree(Fs&, const std::string& path);  // a file or a directory; symlinks are not followed

std::string join_path(std::string_view dir, std::string_view name);
std::string parent_path(const std::string& path);
// A single path component that is safe to create: letters, digits, '.', '_', '-'; no leading '.'; at most 200 bytes.
bool is_plain_name(std::string_view name);

}  // namespace lathe::io
