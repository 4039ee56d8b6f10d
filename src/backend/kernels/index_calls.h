// Launches of index.k and random.k, and of ops that are strided copies.
#pragma once

#include <vector>

#include "backend/kernels/call.h"
#include "ir/graph.h"

namespace lathe {

// iota, gather, scatter_add, arg_max, random_uniform.
std::vector<KernelCall> index_calls(const Node&, ArgTypes in, ArgTypes out, LaunchStyle);
// transpose, slice, pad, concat, reshape.
std::vector<KernelCall> copy_calls(const Node&, ArgTypes in, ArgTypes out, LaunchStyle);

}  // namespace lathe
