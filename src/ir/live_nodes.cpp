#include "ir/live_nodes.h"

#include <algorithm>

namespace lathe {

std::vector<bool> live_nodes(const Graph& g, const std::function<bool(const Node&)>& may_drop) {
  std::vector<bool> needed(g.types.size(), false);
  for (const Output& o : g.outputs) needed[static_cast<size_t>(o.value)] = true;
  std::vector<bool> live(g.nodes.size(), false);
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    live[i] =
        n.op->has(kOrdered) || (may_drop && !may_drop(n)) ||
        std::any_of(n.outputs.begin(), n.outputs.end(), [&](ValueId v) { return needed[static_cast<size_t>(v)]; });
    if (!live[i]) continue;
    for (ValueId v : n.inputs) needed[static_cast<size_t>(v)] = true;
  }
  return live;
}

Graph drop_dead(Graph g) {
  const std::vector<bool> live = live_nodes(g);
  size_t i = 0;
  std::erase_if(g.nodes, [&](const Node&) { return !live[i++]; });
  return g;
}

}  // namespace lathe
