// A series of numbers as a small picture: lines over time, from the least to the largest value.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace lathe::io {

// `values` is [time, width]: `width` lines. PNG; "" where nothing finite is to be drawn.
std::string series_png(std::span<const float> values, int64_t width);

}  // namespace lathe::io
