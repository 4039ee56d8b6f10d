#include "io/page/png.h"

#include <libdeflate.h>

#include <memory>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace lathe::io {
namespace {

void put_u32(std::string& out, uint32_t v) {
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(v >> shift & 0xff);
}

void put_chunk(std::string& out, std::string_view type, std::string_view body) {
  put_u32(out, static_cast<uint32_t>(body.size()));
  std::string checked(type);
  checked += body;
  out += checked;
  put_u32(out, libdeflate_crc32(0, checked.data(), checked.size()));
}

}  // namespace

std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width, int64_t channels) {
  LATHE_CHECK(channels == 1 || channels == 3 || channels == 4, "png: {} channels", channels);
  LATHE_CHECK(height > 0 && width > 0 && height < 1 << 16 && width < 1 << 16, "png: {} x {}", height, width);
  LATHE_CHECK(static_cast<int64_t>(pixels.size()) == height * width * channels);
  std::string rows;  // each behind its filter: none
  for (int64_t y = 0; y < height; ++y) {
    const auto row = pixels.subspan(static_cast<size_t>(y * width * channels), static_cast<size_t>(width * channels));
    rows += '\0';
    rows.append(reinterpret_cast<const char*>(row.data()), row.size());
  }
  const std::unique_ptr<libdeflate_compressor, decltype(&libdeflate_free_compressor)> compressor(
      libdeflate_alloc_compressor(6), libdeflate_free_compressor);
  if (!compressor) throw std::bad_alloc();
  std::string packed(libdeflate_zlib_compress_bound(compressor.get(), rows.size()), '\0');
  packed.resize(libdeflate_zlib_compress(compressor.get(), rows.data(), rows.size(), packed.data(), packed.size()));
  LATHE_CHECK(!packed.empty());

  std::string header;
  put_u32(header, static_cast<uint32_t>(width));
  put_u32(header, static_cast<uint32_t>(height));
  const char colour = channels == 1 ? 0 : channels == 3 ? 2 : 6;
  header += {8, colour, 0, 0, 0};  // bits; then deflate, the standard filters, not interlaced
  std::string out = "\x89PNG\r\n\x1a\n";
  put_chunk(out, "IHDR", header);
  put_chunk(out, "IDAT", packed);
  put_chunk(out, "IEND", "");
  return out;
}

std::string base64(std::string_view bytes) {
  static constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t group = 0;
    for (size_t j = 0; j < 3; ++j) group = group << 8 | (i + j < bytes.size() ? static_cast<uint8_t>(bytes[i + j]) : 0);
    for (size_t j = 0; j < 4; ++j)
      out += i + j <= bytes.size() ? kLetters[group >> (18 - 6 * static_cast<int>(j)) & 63] : '=';
  }
  return out;
}

}  // namespace lathe::io
