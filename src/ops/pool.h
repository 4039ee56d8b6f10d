// What the pooling ops share: parameters, sizes, checks. Channels last: N H W C.
#pragma once

#include "ir/builder.h"
#include "ops/window.h"

namespace lathe {

struct PoolParams {
  int64_t kernel_h = 1, kernel_w = 1;                                // size of a window
  int64_t stride_h = 1, stride_w = 1;                                // steps between windows
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;  // each less than the kernel
  int64_t size_h = 0, size_w = 0;  // avg_pool_grad: height and width of x; 0 for the others
  template <class F>
  static void fields(F&& f) {
    f("kernel_h", &PoolParams::kernel_h);
    f("kernel_w", &PoolParams::kernel_w);
    f("stride_h", &PoolParams::stride_h);
    f("stride_w", &PoolParams::stride_w);
    f("pad_top", &PoolParams::pad_top);
    f("pad_bottom", &PoolParams::pad_bottom);
    f("pad_left", &PoolParams::pad_left);
    f("pad_right", &PoolParams::pad_right);
    f("size_h", &PoolParams::size_h);
    f("size_w", &PoolParams::size_w);
  }
};

// Window (oh, ow) covers the rows rows().positions(oh) and the columns columns().positions(ow) of x, at least one of
// each.
struct PoolGeometry {
  int64_t batch, in_h, in_w, channels;                                                // of x
  int64_t out_h, out_w;                                                               // of y
  int64_t kernel_h, kernel_w, stride_h, stride_w, pad_top, pad_left;                  // as in the parameters
  WindowAxis rows() const { return {in_h, out_h, kernel_h, stride_h, pad_top}; }      // down
  WindowAxis columns() const { return {in_w, out_w, kernel_w, stride_w, pad_left}; }  // across
  bool tiles() const { return rows().tiles() && columns().tiles(); }                  // every element is in one window
  Shape x() const { return {batch, in_h, in_w, channels}; }                           // N H W C
  Shape y() const { return {batch, out_h, out_w, channels}; }                         // N OH OW C
};

// UserError where shape and parameters do not fit; `op` names the op in it.
PoolGeometry pool_geometry(const char* op, const Shape& x, const PoolParams&);

// Test cases of the family.
struct PoolSample {
  const char* label;  // names the case
  Shape x;            // of the images
  PoolParams p;       // of the op
};
std::vector<PoolSample> pool_samples();  // for every op of the family

}  // namespace lathe
