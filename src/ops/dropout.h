// dropout: zero with probability `rate`, else x / (1 - rate): select(u >= rate, x * (1 / (1 - rate)), 0) with u from
// random_uniform(key, index) of x's shape and the rate rounded to f32. It is linear in x: its derivative is itself on
// dy, and no mask is kept.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct DropoutParams {
  double rate = 0;     // [0, 1)
  int64_t stream = 0;  // as of random_uniform
  template <class F>
  static void fields(F&& f) {
    f("rate", &DropoutParams::rate);
    f("stream", &DropoutParams::stream);
  }
};

Value dropout(Value x, Value key, Value index, double rate, int64_t stream);  // x itself for rate 0
extern const OpDef dropout_op;  // inputs: x [B, ...], key i64[2], index i64[B]

}  // namespace lathe
