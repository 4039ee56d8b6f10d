// loss_scale: gradients are those of the loss times a scale, divided by it again in f32: keeps small ones within f16
// (Micikevicius et al., 2018, section 3.2). A power of two changes no bit of an f32 or bf16 gradient.
//
// With `growth` the scale is state: halved (down to 1) by a step that is refused, doubled (up to kLargestLossScale)
// after so many steps in a row that were not. All steps of a set share one scale and one count. After `gate`, whose
// flag it reads; at `grad` nodes, so that everything behind them sees gradients as they are.
#pragma once

#include "passes/precision.h"

namespace lathe {

inline constexpr double kLargestLossScale = 1 << 24;  // it grows no further

struct LossScaleOptions {         // Of the pass loss_scale, which leaves all but f16 (passes/precision.h) as it is.
  double scale = 1024;            // 1, without growth: off
  int64_t growth = 2000;          // steps after which it doubles; 0: it is constant
  static void fields(auto&& f) {  // keys of recipes
    constexpr std::string_view kNeeds = "train.precision = \"f16\"";
    f("train.loss_scale", &LossScaleOptions::scale, allow::range(1, kLargestLossScale),
      "f16: the loss is multiplied by it and the gradients divided, so that small ones are not lost; a power of two",
      computes_in_f16, kNeeds)
        .listed_after("train.precision");
    f("train.loss_scale_growth", &LossScaleOptions::growth, allow::range(0, 1e6),
      "f16: finite steps in a row after which the scale doubles; an overflow skips the step and halves it. 0: it stays",
      computes_in_f16, kNeeds);
  }
  static void check(const PassOptions&, RuleReport&);  // a power of two
};
StepSet loss_scale(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
