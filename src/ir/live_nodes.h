// Dead code: which nodes of a graph anybody needs.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"

namespace lathe {

// For each node: whether an output, or a live node, reads one of its results. Ordered nodes are live, and with
// `may_drop` those for which it is false.
std::vector<bool> live_nodes(const Graph&, const std::function<bool(const Node&)>& may_drop = {});

// Without the others; inputs, outputs and the order of nodes stay.
Graph drop_dead(Graph);

}  // namespace lathe
