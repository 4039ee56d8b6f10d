// reduce_sum, reduce_max: over any axes; keep_dims leaves them in place with size 1. Sum of nothing is 0.
#pragma once

#include <functional>

#include "ir/builder.h"

namespace lathe {

struct ReduceParams {
  Ints axes;               // ascending, not negative
  bool keep_dims = false;  // reduced axes stay, with size 1
  template <class F>
  static void fields(F&& f) {
    f("axes", &ReduceParams::axes);
    f("keep_dims", &ReduceParams::keep_dims);
  }
};

Value reduce_sum(Value x, Ints axes, bool keep_dims = false);   // axes may be negative and in any order
Value reduce_max(Value x, Ints axes, bool keep_dims = false);   // the largest element
Value reduce_mean(Value x, Ints axes, bool keep_dims = false);  // the mean
Value sum_all(Value x);                                         // over every axis

// For composites that reduce.
Shape reduced_shape(const Shape& x, const ReduceParams&);
Ints sorted_axes(Ints axes, int ndim, const char* op);               // ascending, not negative
Value spread_reduced(Value y, const Shape& x, const ReduceParams&);  // the reduced axes put back and repeated
// Calls f(index into x, index into the result) for every element of x.
void for_each_reduced(const Shape& x, const ReduceParams&, const std::function<void(int64_t, int64_t)>& f);
extern const OpDef reduce_sum_op;
extern const OpDef reduce_max_op;

}  // namespace lathe
