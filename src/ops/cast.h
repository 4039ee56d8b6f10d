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

// expand_node for callers that mean what the composite means: over 16-bit values the expansion computes in f32 and
// rounds its results once. A fused node is no such op: each node of its body rounds. `types` are the node's results;
// UserError with the op's name where the expansion gives others.
Values expand_in_f32(Builder&, const Node&, ArgValues args, const Types& types);

}  // namespace lathe
