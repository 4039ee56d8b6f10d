// Merges nodes that one kernel can run into `fused` nodes (ops/fused.h): loops of elementwise nodes with at most one
// reduction, and matmul or conv2d with bias, residual and activation. Values that only fused nodes read vanish;
// constants and broadcasts are computed where they are read. Input: a graph without `grad`. Keeps: inputs and outputs;
// the order of state reads before state writes. Runs last: other passes do not look into fused bodies.
#pragma once

#include "passes/pass.h"

namespace lathe {

Graph fuse(Graph, const PassContext&);

}  // namespace lathe
