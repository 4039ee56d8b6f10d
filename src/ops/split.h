// split: pieces of a tensor along an axis, one output each; the inverse of concat.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct SplitParams {
  int64_t axis = 0;  // not negative
  Ints sizes;        // of the pieces; they add up to the size of the axis
  template <class F>
  static void fields(F&& f) {
    f("axis", &SplitParams::axis);
    f("sizes", &SplitParams::sizes);
  }
};

Values split(Value x, int axis, Ints sizes);
Values split(Value x, int axis, int64_t pieces);  // of equal size
extern const OpDef split_op;

}  // namespace lathe
