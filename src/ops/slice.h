// slice: a box of the input: output[i] = x[starts + i * steps] along every axis.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct SliceParams {
  Ints starts;  // first index per axis
  Ints sizes;   // of the output
  Ints steps;   // >= 1
  template <class F>
  static void fields(F&& f) {
    f("starts", &SliceParams::starts);
    f("sizes", &SliceParams::sizes);
    f("steps", &SliceParams::steps);
  }
};

Value slice(Value x, Ints starts, Ints sizes, Ints steps = {});    // no steps: all 1
Value slice_axis(Value x, int axis, int64_t start, int64_t size);  // along one axis, whole along the others
extern const OpDef slice_op;

}  // namespace lathe
