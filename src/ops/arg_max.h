// arg_max: position of the first maximum along an axis, as i32; a NaN counts as larger than every number.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct ArgMaxParams {
  int64_t axis = 0;  // not negative; dropped from the output
  template <class F>
  static void fields(F&& f) {
    f("axis", &ArgMaxParams::axis);
  }
};

Value arg_max(Value x, int axis = -1);
extern const OpDef arg_max_op;

}  // namespace lathe
