// PNG files from pixels in memory, written by libpng. data/png.h reads them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace lathe::io {

// 8 bits per channel, rows from the top; channels: 1 (grey), 3 (red, green, blue) or 4 (with alpha).
std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width, int64_t channels);

std::string base64(std::string_view bytes);  // as pages embed pictures

}  // namespace lathe::io
