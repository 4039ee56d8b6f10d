// one_hot: 1 at the place of each index along a new last axis, 0 elsewhere; all 0 where an index is out of range.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct OneHotParams {
  int64_t classes = 1;       // size of the new last axis
  DType dtype = DType::f32;  // of the result
  template <class F>
  static void fields(F&& f) {
    f("classes", &OneHotParams::classes);
    f("dtype", &OneHotParams::dtype);
  }
};

Value one_hot(Value indices, int64_t classes, DType = DType::f32);
extern const OpDef one_hot_op;

}  // namespace lathe
