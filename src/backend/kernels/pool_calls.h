// Launches of pool.k: max_pool, max_pool_grad, max_pool_pick, avg_pool, avg_pool_grad.
#pragma once

#include <vector>

#include "backend/kernels/call.h"
#include "ir/graph.h"

namespace lathe {

std::vector<KernelCall> pool_calls(const Node&, ArgTypes in, ArgTypes out, LaunchStyle);

}  // namespace lathe
