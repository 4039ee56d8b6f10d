// Host augmentation of u8 images (H, W, C): flip, shift, rotation in one resampling, then cutout. What happens to a
// sample is a function of (seed, epoch, sample index) alone, so threads and prefetch depth cannot change it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/shape.h"

namespace lathe::data {

struct AugmentConfig {  // What may be done to images.
  bool flip = false;    // mirror left to right, every second image
  int64_t crop = 0;     // pad by this many pixels and crop back: a shift of up to so much in each direction
  double rotate = 0;    // largest angle in degrees, either way; bilinear
  int64_t cutout = 0;   // side of a square of zeros, centred anywhere in the image
  uint8_t padding = 0;  // value outside of the image

  bool any() const { return flip || crop > 0 || rotate > 0 || cutout > 0; }  // whether anything is to be done
  friend bool operator==(const AugmentConfig&, const AugmentConfig&) = default;
};

// What is done to one image.
struct AugmentDraw {
  bool flip = false;                 // mirrored
  int64_t shift_y = 0, shift_x = 0;  // pixels
  double angle = 0;                  // radians
  int64_t cut_y = 0, cut_x = 0;      // centre of the cutout
};

// UserError when `config` cannot be applied to images of this shape.
void check_augment(const AugmentConfig& config, const TensorType& image);

// For one sample.
AugmentDraw draw_augment(const AugmentConfig& config, const Shape& image, uint64_t seed, int64_t epoch, int64_t sample);

// dst and src are (H, W, C) and must not overlap.
void augment(std::span<std::byte> dst, std::span<const std::byte> src, const Shape& image, const AugmentConfig& config,
             const AugmentDraw& draw);

}  // namespace lathe::data
