// Pooling over one and three axes, by the pooling of images. Channels last; padding and NaN as in max_pool and
// avg_pool.
//   max_pool1d, avg_pool1d (x [N, L, C]) -> [N, L', C]
//   max_pool3d, avg_pool3d (x [N, D, H, W, C]) -> [N, D', H', W', C]: planes first, then depth
#pragma once

#include "ir/builder.h"

namespace lathe {

struct PoolAxesParams {
  Ints kernel;  // size of a window: one number for each axis
  Ints stride;  // steps between windows; empty: the kernel's
  Ints pad;     // on both sides, each less than the kernel; empty: 0
  template <class F>
  static void fields(F&& f) {
    f("kernel", &PoolAxesParams::kernel);
    f("stride", &PoolAxesParams::stride);
    f("pad", &PoolAxesParams::pad);
  }
};

Value max_pool1d(Value x, PoolAxesParams);
Value avg_pool1d(Value x, PoolAxesParams);
Value max_pool3d(Value x, PoolAxesParams);
Value avg_pool3d(Value x, PoolAxesParams);
extern const OpDef max_pool1d_op;
extern const OpDef avg_pool1d_op;
extern const OpDef max_pool3d_op;
extern const OpDef avg_pool3d_op;

}  // namespace lathe
