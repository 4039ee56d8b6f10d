// conv2d (cross-correlation, as every framework means it) and its two transposes. Each is linear in both inputs and the
// derivative of each is one of the three, so derivatives of any order stay inside the family.
//
//   conv2d(x, w) -> y        x: N H W C    w: O KH KW C/groups    y: N OH OW O
//   conv2d_dx(dy, w) -> dx   size_h, size_w: height and width of x
//   conv2d_dw(x, dy) -> dw   size_h, size_w: height and width of w
#pragma once

#include "ir/builder.h"
#include "ops/window.h"

namespace lathe {

struct Conv2dParams {
  int64_t stride_h = 1, stride_w = 1;                                // steps between output pixels
  int64_t pad_top = 0, pad_bottom = 0, pad_left = 0, pad_right = 0;  // rows and columns of zeros around x
  int64_t dilation_h = 1, dilation_w = 1;                            // distance of taps
  int64_t groups = 1;                                                // channels are convolved within their group
  int64_t size_h = 0, size_w = 0;                                    // see above; 0 for conv2d
  template <class F>
  static void fields(F&& f) {
    f("stride_h", &Conv2dParams::stride_h);
    f("stride_w", &Conv2dParams::stride_w);
    f("pad_top", &Conv2dParams::pad_top);
    f("pad_bottom", &Conv2dParams::pad_bottom);
    f("pad_left", &Conv2dParams::pad_left);
    f("pad_right", &Conv2dParams::pad_right);
    f("dilation_h", &Conv2dParams::dilation_h);
    f("dilation_w", &Conv2dParams::dilation_w);
    f("groups", &Conv2dParams::groups);
    f("size_h", &Conv2dParams::size_h);
    f("size_w", &Conv2dParams::size_w);
  }
};

// Sizes of one convolution, the same for all three ops. Output pixel (oh, ow) and tap (kh, kw) meet at
// x[rows().at(oh, kh)][columns().at(ow, kw)]; outside x is 0.
struct ConvGeometry {
  int64_t batch, in_h, in_w, in_c;                                        // of x
  int64_t out_h, out_w, out_c;                                            // of y
  int64_t kernel_h, kernel_w;                                             // taps
  int64_t groups, group_in, group_out;                                    // channels of one group
  int64_t stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w;  // as in the parameters

  WindowAxis rows() const { return {in_h, out_h, kernel_h, stride_h, pad_top, dilation_h}; }      // down
  WindowAxis columns() const { return {in_w, out_w, kernel_w, stride_w, pad_left, dilation_w}; }  // across
  int64_t pixels() const { return batch * out_h * out_w; }                                        // of y
  int64_t taps() const { return kernel_h * kernel_w; }                                            // of a channel
  bool is_depthwise() const { return groups == in_c && groups > 1; }                              // group_in is 1
  double flops() const {                                                                          // of one convolution
    return 2.0 * static_cast<double>(batch * out_h * out_w) *
           static_cast<double>(out_c * group_in * kernel_h * kernel_w);
  }
  Shape x() const { return {batch, in_h, in_w, in_c}; }              // N H W C
  Shape w() const { return {out_c, kernel_h, kernel_w, group_in}; }  // O KH KW C/groups
  Shape y() const { return {batch, out_h, out_w, out_c}; }           // N OH OW O
};

// UserError where shapes and parameters do not fit.
ConvGeometry conv_geometry(const Shape& x, const Shape& w, const Conv2dParams&);
ConvGeometry conv_geometry_dx(const Shape& dy, const Shape& w, const Conv2dParams&);  // of conv2d_dx
ConvGeometry conv_geometry_dw(const Shape& x, const Shape& dy, const Conv2dParams&);  // of conv2d_dw

Value conv2d(Value x, Value w, Conv2dParams);
Value conv2d_dx(Value dy, Value w, Conv2dParams, int64_t in_h, int64_t in_w);
Value conv2d_dw(Value x, Value dy, Conv2dParams, int64_t kernel_h, int64_t kernel_w);
extern const OpDef conv2d_op;
extern const OpDef conv2d_dx_op;
extern const OpDef conv2d_dw_op;

}  // namespace lathe
