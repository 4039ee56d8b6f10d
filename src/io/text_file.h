// Whole text files: read with a limit, written so that no reader sees half of one.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::io {

// UserError where it cannot be read or has more than `limit` bytes.
std::string read_file(const std::string& path, int64_t limit);
// Writes beside `path` and renames: a reader sees the old or the new text. UserError with the reason.
void replace_file(const std::string& path, const std::string& text);
// The folder with its parents; nothing happens where it is there. UserError with the reason.
void make_folder(const std::string& path);

}  // namespace lathe::io
