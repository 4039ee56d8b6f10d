// shard_state: says which state is split among the ranks, in the column StateSpec::part of the table; `partition`,
// which comes next, divides it and what reads or writes it. Ranks that have a part each of a moment want a part of its
// gradient and of its parameter: what is sent follows from the placements (labels.h).
//
// The axis of a tensor is the one along which the largest part is the smallest, the first of those that are close.
// Tensors that have fewer than `least` elements, or no axis with an element for each rank, stay whole, and so do
// buffers and counts.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct ShardOptions {             // Of the pass shard_state.
  int64_t level = 0;              // see its field
  int64_t least = 1024;           // elements of a tensor that is split
  static void fields(auto&& f) {  // keys of recipes
    f("parallel.shard", &ShardOptions::level, allow::range(0, 3),
      "what each rank has a part of: 1 moments and averages, 2 also sums of gradients, 3 also weights; 0: nothing")
        .keeps_numbers();
    f("parallel.shard_least", &ShardOptions::least, allow::at_least(1),
      "tensors of fewer elements stay whole on every rank")
        .keeps_numbers();
  }
};

StepSet shard_state(StepSet, const PassContext&);  // see the top of the file

// The axis along which so many ranks share a tensor; -1: none has an element for each.
int split_axis(const Shape&, int ranks);

}  // namespace lathe
