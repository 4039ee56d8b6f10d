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
  // An expansion may hold composites; ops do not nest in themselves, so the depth is the number of composite ops at
  // most.
  constexpr int kMaxDepth = 64;
  for (int depth = 0; std::ranges::any_of(g.nodes, wanted); ++depth) {
    LATHE_CHECK(depth < kMaxDepth, "the expansion of {} holds itself",
                std::ranges::find_if(g.nodes, wanted)->op->name());
    g = rebuild(g, [&](Rebuild& r, const Node& n) -> std::optional<Values> {
      if (!wanted(n)) return std::nullopt;
      return expand_in_f32(r.builder(), n, r.mapped(n.inputs));
    });
  }
  return g;
}

}  // namespace lathe
