// matmul: batched matrix product of the last two axes; the axes before them must be equal.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct MatmulParams {
  bool trans_a = false;  // a is [..., k, m]
  bool trans_b = false;  // b is [..., n, k]
  template <class F>
  static void fields(F&& f) {
    f("trans_a", &MatmulParams::trans_a);
    f("trans_b", &MatmulParams::trans_b);
  }
};

struct MatmulDims {        // The sizes of a product.
  int64_t batch, m, n, k;  // batch times [m, k] by [k, n]
};
MatmulDims matmul_dims(const Shape& a, const Shape& b, const MatmulParams&);  // UserError where they do not fit

// The product; a transposed operand is stored the other way round.
Value matmul(Value a, Value b, bool trans_a = false, bool trans_b = false);
extern const OpDef matmul_op;

}  // namespace lathe
