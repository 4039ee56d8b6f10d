// reshape: the same elements in the same order under another shape. Costs nothing: a view of the input's memory.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct ReshapeParams {
  Ints shape;  // of the result
  template <class F>
  static void fields(F&& f) {
    f("shape", &ReshapeParams::shape);
  }
};

Value reshape(Value x, const Shape&);  // x itself where it has that shape already
extern const OpDef reshape_op;

}  // namespace lathe
