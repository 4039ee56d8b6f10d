// gather: rows of a table: output[i...] = x[indices[i...]] (axis 0). scatter_add, its transpose: a table of zeros to
// which rows are added in the order of the indices, so that the sum is the same on every run.
//
// Indices (i32 or i64) must lie in [0, rows). The reference refuses others; kernels clamp them, so that memory stays
// safe.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct ScatterAddParams {
  int64_t rows = 0;  // of the table
  template <class F>
  static void fields(F&& f) {
    f("rows", &ScatterAddParams::rows);
  }
};

Value gather(Value x, Value indices);                           // x [V, ...], indices [i...] -> [i..., ...]
Value scatter_add(Value indices, Value updates, int64_t rows);  // [i...], [i..., ...] -> [rows, ...]
inline Value embedding(Value table, Value ids) { return gather(table, ids); }  // rows of a table
extern const OpDef gather_op;                                                  // inputs: x, indices
extern const OpDef scatter_add_op;                                             // inputs: indices, updates

}  // namespace lathe
