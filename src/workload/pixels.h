// What a net says of pixels, as numbers of pictures.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

namespace lathe {

// The most likely class of pixel `i`; `logits`: those of all pixels.
inline int64_t class_of_pixel(std::span<const float> logits, int64_t i, int64_t classes) {
  const auto row = logits.subspan(static_cast<size_t>(i * classes), static_cast<size_t>(classes));
  return std::ranges::max_element(row) - row.begin();
}

// The grey that shows a class: black to white in equal steps.
inline uint8_t grey_of_class(int64_t label, int64_t classes) {
  return static_cast<uint8_t>(255 * label / std::max<int64_t>(1, classes - 1));
}

// A pixel of [0, 1] as a byte; what lies outside is cut off.
inline uint8_t byte_of_pixel(float v) {
  return static_cast<uint8_t>(std::clamp(255 * static_cast<double>(v) + 0.5, 0.0, 255.0));
}

}  // namespace lathe
