// cast: converts elements to another type. Float to integer truncates and saturates; NaN becomes 0.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct CastParams {
  DType dtype = DType::f32;  // of the result
  template <class F>
  static void fields(F&& f) {
    f("dtype", &CastParams::dtype);
  }
};

Value cast(Value x, DType);  // x itself where it has that type already
extern const OpDef cast_op;

}  // namespace lathe
