#include "passes/techniques/clip_norm.h"

#include "ops/elementwise.h"
#include "passes/techniques/gradients.h"

namespace lathe {

StepSet clip_norm(StepSet set, const PassContext& context) {
  const double most = context.options.get<ClipNormOptions>().max_norm;
  for (Graph& graph : set.graphs) {
    const std::vector<GradientNode> gradients = gradients_of(graph);
    if (gradients.empty()) continue;
    Edit e(std::move(graph));
    const Origin origin(e.builder(), "clip_norm", Role::update);
    const Value norm = sqrt(squares(e, gradients).total);
    const Value factor = minimum(most / (norm + 1e-6), constant_like(norm, 1.0));
    for (const GradientNode& g : gradients) e.redirect(e.value(g.out), e.value(g.out) * factor);
    graph = e.finish();
  }
  return set;
}

}  // namespace lathe
