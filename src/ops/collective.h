// Collectives: ops whose results depend on what all ranks have. Every rank runs the same ones in the same order; they
// are never merged, repeated or moved across each other. Their derivatives are those of the sum of what all ranks make
// small.
//
// Of a tensor that is split along an axis units are divided (base/part.h), samples or elements: the axis holds the same
// number of elements for each of `units`.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct AllReduceParams {
  int64_t ranks = 1;  // that take part
  friend bool operator==(const AllReduceParams&, const AllReduceParams&) = default;
  template <class F>
  static void fields(F&& f) {
    f("ranks", &AllReduceParams::ranks);
  }
};

// Of what is split, or is to be.
struct ShardParams {
  int64_t ranks = 1;  // that take part
  int64_t axis = 0;   // which is split
  int64_t units = 1;  // of all ranks
  int64_t size = 0;   // of the axis in the result
  friend bool operator==(const ShardParams&, const ShardParams&) = default;
  template <class F>
  static void fields(F&& f) {
    f("ranks", &ShardParams::ranks);
    f("axis", &ShardParams::axis);
    f("units", &ShardParams::units);
    f("size", &ShardParams::size);
  }
};

extern const OpDef all_reduce_op;      // see all_reduce()
extern const OpDef all_gather_op;      // see all_gather()
extern const OpDef reduce_scatter_op;  // see reduce_scatter()
extern const OpDef local_slice_op;     // see local_slice()

Value all_reduce(Value x, int64_t ranks);                    // the sum of x over all ranks
Values all_reduce(ArgValues x, int64_t ranks);               // the same of several tensors of one type, in one go
Value all_gather(Value x, const ShardParams&);               // the whole of what is split
Value reduce_scatter(Value x, const ShardParams&);           // this rank's part of the sum of x over all ranks
Value local_slice(Value x, Value rank, const ShardParams&);  // this rank's part of x; rank: i32

}  // namespace lathe
