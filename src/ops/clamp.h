// clamp: x within [lo, hi]; NaN stays NaN.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct ClampParams {
  double lo = 0, hi = 1;  // the bounds, both included
  template <class F>
  static void fields(F&& f) {
    f("lo", &ClampParams::lo);
    f("hi", &ClampParams::hi);
  }
};

Value clamp(Value x, double lo, double hi);
extern const OpDef clamp_op;

}  // namespace lathe
