// Whole text files: read with a limit, written so that no reader sees half of one.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::io {

class Fs;

// UserError where it cannot be read or has more than `limit` bytes.
std::string read_text(Fs&, const std::string& path, int64_t limit = 1 << 20);
std::string read_file(const std::string& path, int64_t limit);  // the same, on the machine's own file system

// Writes a new file beside `path` and renames it: a reader sees the old or the new text. Of a symlink the file that it
// leads to is replaced. What is there and is no regular file (a device, a pipe) is written to. UserError with the
// reason; a directory is none to write to. After an error nothing is left of the new file.
void replace_text(Fs&, const std::string& path, const std::string& text);
void replace_file(const std::string& path, const std::string& text);  // the same, on the machine's own file system

// The folder with its parents; nothing happens where it is there. UserError with the reason.
void make_folder(const std::string& path);

}  // namespace lathe::io
