// The gradient of an op against finite differences, in f64 on the reference interpreter: for custom ops, and for
// every op of the registry in the tests.
#pragma once

#include "ir/op_def.h"

namespace lathe {

// What check_gradient found for one sample.
struct GradientCheck {
  bool possible = false;  // floats go in and come out; otherwise there is nothing to check
  double error = 0;       // of the derivative along a random direction, relative to the sum of its terms' sizes
  double tolerance = 0;   // what rounding and the finite step explain
  bool ok() const { return error <= tolerance; }  // the derivatives agree
};

// With L = sum_i <c_i, y_i> over the op's outputs and a random direction v, <grad L, v> must equal the five-point
// central difference of L along v. Two lengths of steps are tried, and the better one counts: a maximum that changes
// hands inside a step spoils the difference. The op must be differentiable.
GradientCheck check_gradient(const OpDef& op, const Sample& sample, uint64_t seed = 1);

}  // namespace lathe
