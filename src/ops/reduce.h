// reduce_sum, reduce_max: over any axes; keep_dims leaves them in place with size 1. Sum of nothing is 0.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct ReduceParams {
  Ints axes;  // ascending, not negative
  bool keep_dims = false;
  template <class F>
  static void fields(F&& f) {
    f("axes", &ReduceParams::axes);
    f("keep_dims", &ReduceParams::keep_dims);
  }
};

Value reduce_sum(Value x, Ints axes, bool keep_dims = false);  // axes may be negative and in any order
Value reduce_max(Value x, Ints axes, bool keep_dims = false);
Value reduce_mean(Value x, Ints axes, bool keep_dims = false);
Value sum_all(Value x);  // over every axis
extern const OpDef reduce_sum_op;
extern const OpDef reduce_max_op;

}  // namespace lathe
