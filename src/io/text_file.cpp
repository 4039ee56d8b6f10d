#include "io/text_file.h"

#include "io/file_writer.h"
#include "io/fs.h"

namespace lathe::io {

std::string read_file(const std::string& path, int64_t limit) {
  PosixFs fs;
  const File f = File::open_read(fs, path);
  const int64_t size = f.size();
  LATHE_USER_CHECK(size <= limit, "{}: expected at most {} bytes, got {}", path, limit, size);
  std::string text(static_cast<size_t>(size), '\0');
  f.read_at(0, std::as_writable_bytes(std::span(text.data(), text.size())));
  return text;
}

void replace_file(const std::string& path, const std::string& text) {
  PosixFs fs;
  const std::string beside = path + ".tmp";
  fs.remove_file(beside);
  FileWriter w(fs, beside);
  w.write(text);
  w.finish();
  rename_path(fs, beside, path);
}

void make_folder(const std::string& path) {
  PosixFs fs;
  make_dirs(fs, path);
}

}  // namespace lathe::io
