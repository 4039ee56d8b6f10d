// batch_norm with the statistics of the batch (training), over all axes but the last:
// y = (x - mean) / sqrt(var + eps) * gamma + beta.
//   batch_norm(x [..., C], gamma [C], beta [C]) -> y [..., C], mean [C], var [C] (biased: divided by the count)
//   batch_norm_grad(dy, x, gamma, mean, var) -> dx, dgamma, dbeta
#pragma once

#include "ir/builder.h"

namespace lathe {

struct BatchNormParams {
  double eps = 1e-5;  // added to the variance
  template <class F>
  static void fields(F&& f) {
    f("eps", &BatchNormParams::eps);
  }
};

struct BatchNormResult {  // What batch_norm gives.
  Value y, mean, var;     // the normalised batch, and the statistics of each channel
};
BatchNormResult batch_norm(Value x, Value gamma, Value beta, double eps = 1e-5);
extern const OpDef batch_norm_op;
extern const OpDef batch_norm_grad_op;  // the same parameters

}  // namespace lathe
