#include "io/page/series_png.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "io/page/png.h"

namespace lathe::io {
namespace {

constexpr int64_t kSeriesHeight = 64, kSeriesWidth = 192, kSeriesMargin = 3;
constexpr int64_t kMostLines = 8;
constexpr uint8_t kPaper = 255;

struct Canvas {
  std::vector<uint8_t> pixels = std::vector<uint8_t>(kSeriesHeight * kSeriesWidth, kPaper);

  // From one column to the next every row between the two values is filled, so that steep lines have no gaps.
  void line(int64_t x0, int64_t y0, int64_t x1, int64_t y1, uint8_t ink) {
    const int64_t steps = std::max<int64_t>({std::abs(x1 - x0), std::abs(y1 - y0), 1});
    for (int64_t i = 0; i <= steps; ++i) {
      const int64_t x = x0 + (x1 - x0) * i / steps, y = y0 + (y1 - y0) * i / steps;
      pixels[static_cast<size_t>(y * kSeriesWidth + x)] = ink;
    }
  }
};

}  // namespace

std::string series_png(std::span<const float> values, int64_t width) {
  if (width < 1 || static_cast<int64_t>(values.size()) < width) return "";
  const int64_t times = static_cast<int64_t>(values.size()) / width, lines = std::min(width, kMostLines);
  double low = INFINITY, high = -INFINITY;
  for (const float v : values) {
    if (!std::isfinite(v)) continue;
    low = std::min<double>(low, v);
    high = std::max<double>(high, v);
  }
  if (!(low <= high)) return "";
  const double range = high > low ? high - low : 1;
  Canvas canvas;
  for (int64_t k = 0; k < lines; ++k) {
    int64_t last_x = -1, last_y = 0;
    for (int64_t t = 0; t < times; ++t) {
      const float v = values[static_cast<size_t>(t * width + k)];
      if (!std::isfinite(v)) {
        last_x = -1;
        continue;
      }
      const int64_t x = kSeriesMargin + (kSeriesWidth - 1 - 2 * kSeriesMargin) * t / std::max<int64_t>(1, times - 1);
      const auto y = static_cast<int64_t>(
          std::lround(kSeriesMargin + (high - v) / range * (kSeriesHeight - 1 - 2 * kSeriesMargin)));
      if (last_x < 0) last_x = x, last_y = y;
      canvas.line(last_x, last_y, x, y, static_cast<uint8_t>(40 + 160 * k / lines));
      last_x = x;
      last_y = y;
    }
  }
  return encode_png(canvas.pixels, kSeriesHeight, kSeriesWidth, 1);
}

}  // namespace lathe::io
