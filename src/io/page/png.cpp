#include "io/page/png.h"

#include <png.h>

#include "base/error.h"

namespace lathe::io {

std::string encode_png(std::span<const uint8_t> pixels, int64_t height, int64_t width, int64_t channels) {
  LATHE_CHECK(channels == 1 || channels == 3 || channels == 4, "png: {} channels", channels);
  LATHE_CHECK(height > 0 && width > 0 && height < 1 << 16 && width < 1 << 16, "png: {} x {}", height, width);
  LATHE_CHECK(static_cast<int64_t>(pixels.size()) == height * width * channels);
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(width);
  image.height = static_cast<png_uint_32>(height);
  image.format = channels == 1 ? PNG_FORMAT_GRAY : channels == 3 ? PNG_FORMAT_RGB : PNG_FORMAT_RGBA;
  png_alloc_size_t bytes = PNG_IMAGE_PNG_SIZE_MAX(image);
  std::string out(bytes, '\0');
  const int written = png_image_write_to_memory(&image, out.data(), &bytes, 0, pixels.data(), 0, nullptr);
  const std::string message = image.message;
  png_image_free(&image);
  LATHE_CHECK(written != 0, "png: {}", message);
  out.resize(bytes);
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
