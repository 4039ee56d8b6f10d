// kl_loss: t (log t - x) of each element, where x are log-probabilities and t probabilities, or their logarithms; its
// sum is the Kullback-Leibler divergence. 0 where t is 0.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct KlLossParams {
  bool log_target = false;  // the target is logarithms of probabilities
  template <class F>
  static void fields(F&& f) {
    f("log_target", &KlLossParams::log_target);
  }
};

Value kl_loss(Value log_probabilities, Value target, bool log_target = false);
extern const OpDef kl_loss_op;

}  // namespace lathe
