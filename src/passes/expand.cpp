#include "passes/expand.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ops/cast.h"
#include "ops/fused.h"

namespace lathe {

Graph expand(Graph g, const PassContext& context) {
  const auto wanted = [&](const Node& n) {
    return n.op->is_composite() && n.op != &fused_op && !context.target.is_native(n.op->name());
  };
  for (int depth = 0;; ++depth) {
    const auto composite = std::ranges::find_if(g.nodes, wanted);
    if (composite == g.nodes.end()) return g;
    check_expansion_ends(g, depth, *composite->op);
    g = rebuild(std::move(g), [&](Rebuild& r, const Node& n) -> std::optional<Values> {
      if (!wanted(n)) return std::nullopt;
      return expand_in_f32(r.builder(), n, r.mapped(n.inputs), r.source().types_of(n.outputs));
    });
  }
}

}  // namespace lathe
