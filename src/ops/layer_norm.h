// layer_norm over the last axis: y = (x - mean) * rstd * gamma + beta, rstd = 1 / sqrt(variance + eps).
//   layer_norm(x [..., C], gamma [C], beta [C]) -> y [..., C], mean [...], rstd [...]
//   layer_norm_grad(dy, x, gamma, mean, rstd) -> dx, dgamma, dbeta
#pragma once

#include "ir/builder.h"

namespace lathe {

struct LayerNormParams {
  double eps = 1e-5;  // added to the variance
  template <class F>
  static void fields(F&& f) {
    f("eps", &LayerNormParams::eps);
  }
};

Value layer_norm(Value x, Value gamma, Value beta, double eps = 1e-5);  // y
extern const OpDef layer_norm_op;
extern const OpDef layer_norm_grad_op;  // no parameters

}  // namespace lathe
