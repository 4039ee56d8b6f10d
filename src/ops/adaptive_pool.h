// Pooling of NHWC images to a size that is given, whatever theirs: output i covers the input from floor(i n / size) to
// ceil((i + 1) n / size). Size 1 is the mean or maximum of the whole image (global pooling).
#pragma once

#include "ir/builder.h"

namespace lathe {

struct AdaptivePoolParams {
  int64_t size_h = 1, size_w = 1;  // of the output
  template <class F>
  static void fields(F&& f) {
    f("size_h", &AdaptivePoolParams::size_h);
    f("size_w", &AdaptivePoolParams::size_w);
  }
};

Value adaptive_avg_pool(Value x, int64_t size_h, int64_t size_w);
Value adaptive_max_pool(Value x, int64_t size_h, int64_t size_w);
Value global_avg_pool(Value x);  // [N, H, W, C] -> [N, C]
Value global_max_pool(Value x);  // likewise
extern const OpDef adaptive_avg_pool_op;
extern const OpDef adaptive_max_pool_op;

}  // namespace lathe
