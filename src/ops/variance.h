// reduce_mean and variance over axes. variance divides by the number of elements less `correction`: 0 for the variance
// of the data, 1 for an unbiased estimate.
#pragma once

#include "ops/reduce.h"

namespace lathe {

struct VarianceParams {
  Ints axes;               // ascending, not negative
  bool keep_dims = false;  // the axes stay, with size 1
  int64_t correction = 0;  // subtracted from the count
  template <class F>
  static void fields(F&& f) {
    f("axes", &VarianceParams::axes);
    f("keep_dims", &VarianceParams::keep_dims);
    f("correction", &VarianceParams::correction);
  }
};

Value variance(Value x, Ints axes, bool keep_dims = false, int64_t correction = 0);
extern const OpDef reduce_mean_op;  // ReduceParams; the function reduce_mean() writes its two nodes itself
extern const OpDef variance_op;

}  // namespace lathe
