// Reading a whole file from outside: regular files only (a FIFO must not block), a size cap before any allocation,
// retries for the transient errors of network file systems.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace lathe::data {

// UserError: missing (66, with `hint` when not empty), not a regular file or larger than the cap (65), unreadable (74).
std::vector<std::byte> read_file(const std::string& path, int64_t max_bytes, const std::string& hint = {});

// The first bytes of a file, at most so many, and the size of all of it; errors as read_file has them.
struct FileStart {
  std::vector<std::byte> bytes;
  int64_t file_bytes = 0;
};
FileStart read_start(const std::string& path, int64_t bytes, const std::string& hint = {});

bool is_regular_file(const std::string& path);
// "a directory" or "a FIFO, device or socket" where the path is such; null for regular files and for nothing.
const char* kind_of_other(const std::string& path);

}  // namespace lathe::data
