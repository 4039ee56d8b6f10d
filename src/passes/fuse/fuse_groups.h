// Which nodes become one: a partition of the live nodes such that the graph of groups stays acyclic, state reads before
// state writes included. Cheap nodes that several groups want are made transparent.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "ir/target.h"
#include "passes/fuse/fuse_graph.h"

namespace lathe {

struct FuseGroup {
  std::string_view kind;  // "loop", "matmul", "conv2d"; empty: one node as it is
  NodeIds nodes;          // ascending
};

// In an order in which every group stands behind what it depends on.
std::vector<FuseGroup> form_groups(FuseGraph&, const Target&);

}  // namespace lathe
