// Joins to products what a library computes along with them: the value before a gelu that is needed again, the gradient
// of gelu behind a product, and the gradient of a bias (see ops/fused.h for the forms).
#pragma once

#include "passes/fuse/fuse_partition.h"

namespace lathe {

// Runs when the epilogues of all products are grown and before loops are. `columns`: Target::gradient_epilogues.
void join_gradients(const FuseGraph&, FusePartition&, int64_t columns);

}  // namespace lathe
