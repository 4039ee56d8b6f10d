// concat: tensors one after another along an axis; the other dimensions are equal.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct ConcatParams {
  int64_t axis = 0;  // not negative
  template <class F>
  static void fields(F&& f) {
    f("axis", &ConcatParams::axis);
  }
};

Value concat(ArgValues x, int axis);  // the axis may be negative; one input comes back as it is
extern const OpDef concat_op;

}  // namespace lathe
