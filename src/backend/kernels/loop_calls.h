// The one renderer of loops: turns a LoopNest into kernel text and launches. The text is generic in sizes and strides
// (they are arguments); it depends on the instructions, the types, the number of merged axes and which strides are 0
// or, along the innermost axis, 1. So equal work on different shapes compiles once.
//
// Reductions are fixed trees: the order in which one result is summed depends on the shapes alone. Where few results
// are summed from many elements, a first kernel leaves partial results in the workspace and a second one finishes.
#pragma once

#include <vector>

#include "backend/kernels/call.h"
#include "backend/kernels/loop_nest.h"

namespace lathe {

// `items`: work-items of a wide group, a power of two; 0: group_items(). They decide the shape of the trees.
std::vector<KernelCall> loop_calls(const LoopNest&, LaunchStyle, int items = 0);
int64_t loop_workspace(const LoopNest&);  // bytes

}  // namespace lathe
