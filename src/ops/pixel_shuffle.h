// pixel_shuffle: channels of an image to pixels (Shi et al., 2016): [N, H, W, C r r] -> [N, H r, W r, C], where channel
// c r r + i r + j becomes pixel (i, j) of channel c. pixel_unshuffle is its inverse.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct PixelShuffleParams {
  int64_t factor = 1;  // by which height and width grow, or shrink
  template <class F>
  static void fields(F&& f) {
    f("factor", &PixelShuffleParams::factor);
  }
};

Value pixel_shuffle(Value x, int64_t factor);
Value pixel_unshuffle(Value x, int64_t factor);
extern const OpDef pixel_shuffle_op;
extern const OpDef pixel_unshuffle_op;

}  // namespace lathe
