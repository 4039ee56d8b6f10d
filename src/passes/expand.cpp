#include "passes/expand.h"

#include "ops/expand_nodes.h"
#include "ops/fused.h"

namespace lathe {

Graph expand(Graph g, const PassContext& context) {
  return expand_where(std::move(g), [&](const Graph&, const Node& n) {
    return n.op != &fused_op && !context.target.is_native(n.op->name());
  });
}

}  // namespace lathe
