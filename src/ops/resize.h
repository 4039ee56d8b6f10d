// Images (N H W C) at another size.
//   resize_nearest: pixel floor(i * H / size_h) of the input for pixel i
//   resize_bilinear: between the two nearest pixels; pixel centres lie at i + 1/2, or, with align_corners, the corner
//   pixels on each other
#pragma once

#include "ir/builder.h"

namespace lathe {

struct ResizeNearestParams {
  int64_t size_h = 1, size_w = 1;  // of the output
  template <class F>
  static void fields(F&& f) {
    f("size_h", &ResizeNearestParams::size_h);
    f("size_w", &ResizeNearestParams::size_w);
  }
};

struct ResizeBilinearParams {
  int64_t size_h = 1, size_w = 1;  // of the output
  bool align_corners = false;      // corner pixels lie on each other
  template <class F>
  static void fields(F&& f) {
    f("size_h", &ResizeBilinearParams::size_h);
    f("size_w", &ResizeBilinearParams::size_w);
    f("align_corners", &ResizeBilinearParams::align_corners);
  }
};

Value resize_nearest(Value x, int64_t size_h, int64_t size_w);
Value resize_bilinear(Value x, int64_t size_h, int64_t size_w, bool align_corners = false);
extern const OpDef resize_bilinear_op;
extern const OpDef resize_nearest_op;

}  // namespace lathe
