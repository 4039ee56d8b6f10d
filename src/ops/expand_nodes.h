// expand_nodes: composites replaced by what they are made of, in one place for all that do so. Over 16-bit values an
// expansion computes in f32 and rounds its results once; a fused node is no such op: each node of its body rounds.
#pragma once

#include <functional>
#include <vector>

#include "ir/graph.h"

namespace lathe {

// Which nodes of a graph to expand, all of them composites. `fresh`: by node, whether it was not there when the marks
// were asked for last; nodes that stay keep their order.
using ExpandMarks = std::function<std::vector<bool>(const Graph&, const std::vector<bool>& fresh)>;

// Expands the marked nodes, then those marked in the graph that this gives, until there are none. UserError with the
// op's name where there is no end to it, or where an expansion gives other types than the op's rule.
Graph expand_marked(Graph, const ExpandMarks&);

// The same for a choice that concerns the node alone; each node is asked about once, and expanded only if composite.
Graph expand_where(Graph, const std::function<bool(const Graph&, const Node&)>& wanted);

}  // namespace lathe
