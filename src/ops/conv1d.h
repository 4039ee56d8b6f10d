// Convolutions over one and three axes, and transposed ones, which turn the sizes of x and y of a convolution round;
// all by conv2d and its derivative. Channels last.
//   conv1d(x [N, L, C], w [O, K, C/groups]) -> [N, L', O]
//   conv3d(x [N, D, H, W, C], w [O, KD, KH, KW, C/groups]) -> [N, D', H', W', O]
//   conv_transpose1d(x [N, L, C], w [C, K, O/groups]) -> [N, L', O]
//   conv_transpose2d(x [N, H, W, C], w [C, KH, KW, O/groups]) -> [N, H', W', O]
//   conv_transpose3d(x [N, D, H, W, C], w [C, KD, KH, KW, O/groups]) -> [N, D', H', W', O]
// Those over three axes are sums over the taps in depth.
// A transposed convolution makes (n - 1) stride - pads + dilation (K - 1) + 1 + extra of n.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct Conv1dParams {
  int64_t stride = 1, pad_left = 0, pad_right = 0, dilation = 1, groups = 1;  // as of conv2d, along one axis
  template <class F>
  static void fields(F&& f) {
    f("stride", &Conv1dParams::stride);
    f("pad_left", &Conv1dParams::pad_left);
    f("pad_right", &Conv1dParams::pad_right);
    f("dilation", &Conv1dParams::dilation);
    f("groups", &Conv1dParams::groups);
  }
};

struct Conv3dParams {
  Ints stride = {1, 1, 1};    // depth, height, width
  Ints pad = {0, 0, 0};       // on both sides
  Ints dilation = {1, 1, 1};  // distance of taps
  int64_t groups = 1;         // channels are convolved within their group
  template <class F>
  static void fields(F&& f) {
    f("stride", &Conv3dParams::stride);
    f("pad", &Conv3dParams::pad);
    f("dilation", &Conv3dParams::dilation);
    f("groups", &Conv3dParams::groups);
  }
};

struct ConvTransposeParams {
  Ints stride;         // one number for each axis; empty: 1
  Ints pad;            // likewise, empty: 0; that of the convolution, on both sides
  Ints dilation;       // likewise, empty: 1
  Ints extra;          // likewise, empty: 0; rows of the result beyond the smallest that fits
  int64_t groups = 1;  // channels are convolved within their group
  template <class F>
  static void fields(F&& f) {
    f("stride", &ConvTransposeParams::stride);
    f("pad", &ConvTransposeParams::pad);
    f("dilation", &ConvTransposeParams::dilation);
    f("extra", &ConvTransposeParams::extra);
    f("groups", &ConvTransposeParams::groups);
  }
};

Value conv1d(Value x, Value w, Conv1dParams);
Value conv3d(Value x, Value w, Conv3dParams);
Value conv_transpose1d(Value x, Value w, ConvTransposeParams);
Value conv_transpose2d(Value x, Value w, ConvTransposeParams);
Value conv_transpose3d(Value x, Value w, ConvTransposeParams);
extern const OpDef conv1d_op;
extern const OpDef conv3d_op;
extern const OpDef conv_transpose1d_op;
extern const OpDef conv_transpose2d_op;
extern const OpDef conv_transpose3d_op;

}  // namespace lathe
