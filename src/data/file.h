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

bool is_regular_file(const std::string& path);

}  // namespace lathe::data
