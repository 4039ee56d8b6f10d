// Order along the last axis; NaN comes after all numbers, equal elements stay in their order.
//   arg_sort(x) -> indices i32: the smallest element's first (descending: the largest)
//   sort(x) -> values, indices
//   top_k(x) -> the k largest (or smallest) values, in order, and their indices
// As an expansion each element counts those before it: n^2 comparisons for a row of n.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct SortParams {
  bool descending = false;  // the largest first
  template <class F>
  static void fields(F&& f) {
    f("descending", &SortParams::descending);
  }
};

struct TopKParams {
  int64_t k = 1;        // how many
  bool largest = true;  // else the smallest
  template <class F>
  static void fields(F&& f) {
    f("k", &TopKParams::k);
    f("largest", &TopKParams::largest);
  }
};

struct Sorted {           // Elements in order.
  Value values, indices;  // the elements, and where each was (i32)
};
Value arg_sort(Value x, bool descending = false);
Sorted sort(Value x, bool descending = false);
Sorted top_k(Value x, int64_t k, bool largest = true);
extern const OpDef arg_sort_op;
extern const OpDef sort_op;
extern const OpDef top_k_op;

}  // namespace lathe
