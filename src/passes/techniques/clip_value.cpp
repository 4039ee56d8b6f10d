#include "passes/techniques/clip_value.h"

#include "ops/elementwise.h"
#include "passes/techniques/gradients.h"

namespace lathe {

StepSet clip_value(StepSet set, const PassContext& context) {
  const double most = context.options.get<ClipValueOptions>().value;
  for (Graph& graph : set.graphs) {
    const std::vector<GradientNode> gradients = gradients_of(graph);
    if (gradients.empty()) continue;
    Edit e(std::move(graph));
    const Origin origin(e.builder(), "clip_value", Role::update);
    for (const GradientNode& g : gradients) {
      const Value v = e.value(g.in);
      e.set_input(g.node, 0, minimum(maximum(v, constant_like(v, -most)), constant_like(v, most)));
    }
    graph = e.finish();
  }
  return set;
}

}  // namespace lathe
