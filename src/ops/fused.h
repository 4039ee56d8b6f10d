// fused: several nodes that run as one kernel; the body is a graph over the node's inputs. Made by the `fuse` pass.
//   kind "loop":   elementwise nodes, casts, broadcasts and constants over one domain, with at most one reduction and
//                  elementwise nodes after it (see loop.h)
//   kind "matmul", "conv2d": that op, then a chain of elementwise nodes over its output (bias, activation, residual)
//                  Where Target::gradient_epilogues allows, a matrix product [m, n] may also have these forms:
//                  sums, gelu        the value before gelu is an output too
//                  mul(product, gelu_slope(z)), and the sum of that over m as a second output
//                  the product, and the sum over k of one of its operands as a second output
// If no kernel of a backend accepts the node, the plan expands it again.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct FusedParams {
  std::string kind;  // which shape of body, for kernels: see above
  GraphPtr body;     // what is computed
  template <class F>
  static void fields(F&& f) {
    f("kind", &FusedParams::kind);
    f("body", &FusedParams::body);
  }
};

extern const OpDef fused_op;

}  // namespace lathe
