// cross_entropy: loss of each sample, -sum_c t_c * log softmax(logits)_c with t = (1 - smoothing) * one_hot + smoothing
// / C.
//   cross_entropy(logits [B, C], labels i32[B]) -> losses [B]
//   cross_entropy_grad(dlosses [B], logits, labels) -> dlogits = dlosses * (softmax(logits) - t)
// Labels must lie in [0, C), which the data source checks. Others give a wrong loss, but never touch foreign memory.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct CrossEntropyParams {
  double smoothing = 0;  // [0, 1]
  template <class F>
  static void fields(F&& f) {
    f("smoothing", &CrossEntropyParams::smoothing);
  }
};

Value cross_entropy(Value logits, Value labels, double smoothing = 0);
Value cross_entropy_grad(Value dlosses, Value logits, Value labels, double smoothing);
extern const OpDef cross_entropy_op;
extern const OpDef cross_entropy_grad_op;

}  // namespace lathe
