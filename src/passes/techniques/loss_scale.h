// loss_scale: gradients are those of the loss times a scale, divided by it again in f32: keeps small ones within f16
// (Micikevicius et al., 2018, section 3.2). A power of two changes no bit of an f32 or bf16 gradient.
//
// With `growth` the scale is state: halved (down to 1) by a step that is refused, doubled (up to kLargestLossScale)
// after so many steps in a row that were not. After `gate`, whose flag it reads; at `grad` nodes, so that everything
// behind them sees gradients as they are.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct LossScaleOptions {  // Of the pass loss_scale.
  double scale = 1;        // 1, without growth: off
  int64_t growth = 0;      // steps after which it doubles; 0: it is constant
};
inline constexpr double kLargestLossScale = 1 << 24;  // it grows no further

StepSet loss_scale(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
