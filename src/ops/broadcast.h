// broadcast: repeats a tensor along dimensions of size 1 or missing in front (numpy's rule).
#pragma once

#include "ir/builder.h"

namespace lathe {

struct BroadcastParams {
  Ints shape;  // of the result
  template <class F>
  static void fields(F&& f) {
    f("shape", &BroadcastParams::shape);
  }
};

Shape broadcast_shape(const Shape& a, const Shape& b);  // UserError where they do not fit
Value broadcast_to(Value x, const Shape&);              // x itself where it has that shape already
// Strides of `from` when read at the indices of `to`: 0 along repeated dimensions.
Ints broadcast_strides(const Shape& from, const Shape& to);
extern const OpDef broadcast_op;

}  // namespace lathe
