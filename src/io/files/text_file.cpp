#include "io/files/text_file.h"

#include <unistd.h>

#include <atomic>

#include "io/files/file_writer.h"
#include "io/files/fs.h"

namespace lathe::io {
namespace {

// A free name in the folder of `path`. It does not grow with that of the file, which may have the longest there is.
std::string name_beside(Fs& fs, const std::string& path) {
  static std::atomic<int64_t> count{0};
  std::string name;
  do name = join_path(parent_path(path), fmt::format(".lathe-{}-{}.tmp", ::getpid(), ++count));
  while (info_at(fs, name));
  return name;
}

}  // namespace

std::string read_text(Fs& fs, const std::string& path, int64_t limit) {
  const File f = File::open_read(fs, path);
  const int64_t size = f.size();
  LATHE_USER_CHECK(size <= limit, "{}: expected at most {} bytes, got {}", path, limit, size);
  std::string text(static_cast<size_t>(size), '\0');
  f.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

std::string read_file(const std::string& path, int64_t limit) {
  PosixFs fs;
  return read_text(fs, path, limit);
}

void replace_text(Fs& fs, const std::string& path, const std::string& text) {
  const auto there = info_behind(fs, path);
  if (there && there->kind == FileInfo::Kind::directory)
    throw UserError(fmt::format("{}: expected the name of a file to write, got a directory", path),
                    Exit::cannot_create);
  const std::string file = behind_links(fs, path);
  // The links of /proc lead to open files, which need not have a name: "pipe:[123]".
  if (there && (there->kind != FileInfo::Kind::regular || !info_at(fs, file))) {
    File out = File::open_write(fs, path);
    out.write(bytes_of(text));
    out.close();
    return;
  }
  if (const std::string folder = parent_path(file); !info_behind(fs, folder))
    throw UserError(fmt::format("cannot create {}: there is no folder {}", path, folder), Exit::cannot_create);
  const std::string beside = name_beside(fs, file);
  try {
    FileWriter w(fs, beside);
    w.write(text);
    w.finish();
    rename_path(fs, beside, file);
  } catch (const UserError& e) {
    fs.remove_file(beside);
    // Nobody knows the name beside it.
    std::string message = e.what();
    if (const size_t at = message.find(beside); at != message.npos) message.replace(at, beside.size(), path);
    throw UserError(message, e.exit_code());
  } catch (...) {
    fs.remove_file(beside);
    throw;
  }
}

void replace_file(const std::string& path, const std::string& text) {
  PosixFs fs;
  replace_text(fs, path, text);
}

void make_folder(const std::string& path) {
  PosixFs fs;
  make_dirs(fs, path);
}

}  // namespace lathe::io
