// elu: x where it is positive, alpha * (exp(x) - 1) elsewhere (Clevert et al., 2016).
#pragma once

#include "ir/builder.h"

namespace lathe {

struct EluParams {
  double alpha = 1;  // -alpha is the limit for small x
  template <class F>
  static void fields(F&& f) {
    f("alpha", &EluParams::alpha);
  }
};

Value elu(Value x, double alpha = 1);
extern const OpDef elu_op;

}  // namespace lathe
