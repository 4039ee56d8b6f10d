// tree_sum: the sum of what all blocks of a batch give, added up in an order that does not depend on the ranks
// (base/block_tree.h). A collective. Inputs: for each of the largest halves of halves of all blocks that this rank has,
// in order, the sum over its blocks.
#pragma once

#include "ir/builder.h"

namespace lathe {

struct TreeSumParams {
  int64_t ranks = 1;   // that take part
  int64_t rank = 0;    // this one
  int64_t blocks = 1;  // of all ranks
  friend bool operator==(const TreeSumParams&, const TreeSumParams&) = default;
  template <class F>
  static void fields(F&& f) {
    f("ranks", &TreeSumParams::ranks);
    f("rank", &TreeSumParams::rank);
    f("blocks", &TreeSumParams::blocks);
  }
};

Value tree_sum(ArgValues x, const TreeSumParams&);
extern const OpDef tree_sum_op;

}  // namespace lathe
