// Families that read an image as a sequence of square patches.
#pragma once

#include <fmt/format.h>

#include "base/schema.h"
#include "nn/layers.h"
#include "ops/reshape.h"

namespace lathe {

// x [B, H, W, C] -> [B, patches, width], row by row, by a strided convolution.
inline Value patches(Net& net, const std::string& name, Value x, int64_t width, int64_t side) {
  LATHE_USER_CHECK(x.dim(1) % side == 0 && x.dim(2) % side == 0,
                   "model.patch: expected a divisor of the image sides {} and {}, got {}", x.dim(1), x.dim(2), side);
  const int64_t count = (x.dim(1) / side) * (x.dim(2) / side);
  return reshape(conv2d(net, name, x, width, {.kernel = side, .stride = side, .padding = 0}), {x.dim(0), count, width});
}

inline void check_patch(int64_t side, const TensorType& sample, RuleReport& report) {  // as `patches` demands
  const int64_t h = sample.shape[0], w = sample.shape[1];
  if (h % side != 0 || w % side != 0)
    report.fail({"patch"}, fmt::format("expected a divisor of the image sides {} and {}, got {}", h, w, side));
}

}  // namespace lathe
