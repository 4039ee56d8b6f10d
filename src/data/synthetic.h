// Synthetic images: one random prototype per class plus bell-shaped noise, all from counters in integer arithmetic:
// no files, the same bytes on every machine. Learnable, so tests can see a loss fall.
#pragma once

#include <memory>

#include "base/shape.h"
#include "data/source.h"

namespace lathe::data {

struct SyntheticConfig {
  Shape shape{28, 28, 1};  // of one image; (H, W, C)
  int64_t classes = 10;
  int64_t count = 1024;
  uint64_t seed = 0;
  Split split = Split::train;  // both splits share the prototypes, not the noise
  LabelKind label = LabelKind::class_index;
};

// Fields "image" u8[shape], and "label" i32[], or "target" f32[1] (the class as a number of mean 0 and deviation 1), or
// "mask" u8[H, W]: a rectangle of class 1 or more on a background, class 0, of noise alone.
SourceInfo describe_synthetic(const SyntheticConfig&);  // what make_synthetic would make
std::unique_ptr<Source> make_synthetic(const SyntheticConfig& config);

}  // namespace lathe::data
