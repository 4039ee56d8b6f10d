// Binary PGM (P5) and PPM (P6) images with 8 bits per channel.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "base/shape.h"

namespace lathe::data {

struct PnmHeader {
  Shape shape;        // height, width, channels (1 or 3)
  int64_t bytes = 0;  // of the header; the pixels follow
};

bool is_pnm(std::span<const std::byte> start);

// `start` are the first bytes of the file, `file_bytes` the size of all of it: nothing is allocated for an image before
// its declared size agrees with the file's. UserError with `name` and the byte where it went wrong.
PnmHeader parse_pnm_header(std::span<const std::byte> start, int64_t file_bytes, const std::string& name);

// The pixels of a file that must hold one image of exactly this shape.
std::vector<std::byte> read_pnm(const std::string& path, const Shape& shape);

}  // namespace lathe::data
