// Blocks: the same bits on any number of ranks. A batch is made of a fixed number of blocks, each of which is computed
// as if it were a rank of its own; what blocks give is added up in a fixed order (ops/tree_sum.h). A rank has several
// of them: nothing that a block computes, and no sum, depends on how many ranks there are.
#pragma once

#include <vector>

#include "ir/graph.h"
#include "passes/pass.h"

namespace lathe {

struct SameBitsOptions {          // Of the pass partition.
  bool on = false;                // results do not depend on the number of ranks, to the bit
  int64_t blocks = 8;             // that a batch is made of; as many ranks at most
  static void fields(auto&& f) {  // keys of recipes
    f("parallel.same_bits", &SameBitsOptions::on, Allowed{},
      "the same weights, byte for byte, on any number of ranks: a batch is computed in blocks, which costs speed")
        .is_stable();
    f("parallel.blocks", &SameBitsOptions::blocks, allow::range(1, 256),
      "same_bits: blocks that a batch is made of, as many as ranks at the least; another number gives other bits");
  }
  int64_t used() const { return on ? blocks : 0; }  // 0: samples are divided one by one
};

// The graph of a rank from those of its blocks, which divide() made for a mesh of as many ranks as there are blocks:
// node by node side by side; what is the same for all of them once. `split`: by input, whether blocks have parts of it.
// `number`: of blocks, those of all ranks.
Graph join_blocks(const std::vector<Graph>& blocks, const std::vector<bool>& split, const Mesh&, int64_t number);

}  // namespace lathe
