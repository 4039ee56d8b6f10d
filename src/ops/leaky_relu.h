// leaky_relu: x where it is positive, slope * x elsewhere. prelu: the same with a slope per channel that is learnt.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct LeakyReluParams {
  double slope = 0.01;  // of negative x
  template <class F>
  static void fields(F&& f) {
    f("slope", &LeakyReluParams::slope);
  }
};

Value leaky_relu(Value x, double slope = 0.01);
Value prelu(Value x, Value slope);  // [..., C], [C]
extern const OpDef leaky_relu_op;
extern const OpDef prelu_op;

}  // namespace lathe
