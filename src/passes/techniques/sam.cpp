#include "passes/techniques/sam.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/reduce.h"
#include "passes/techniques/gradients.h"

namespace lathe {
namespace {

// The `grad` nodes whose results are gradients of parameters.
std::vector<size_t> parameter_grads(const Graph& g) {
  const auto def = definitions(g);
  std::vector<size_t> out;
  for (const GradientNode& n : gradients_of(g)) {
    const int32_t d = def[static_cast<size_t>(n.in)];
    if (d < 0 || g.nodes[static_cast<size_t>(d)].op != &grad_op) continue;
    if (std::ranges::find(out, static_cast<size_t>(d)) == out.end()) out.push_back(static_cast<size_t>(d));
  }
  return out;
}

}  // namespace

StepSet sam(StepSet set, const PassContext& context) {
  const double rho = context.options.get<SamOptions>().rho;
  for (Graph& graph : set.graphs) {
    const std::vector<size_t> grads = parameter_grads(graph);
    if (grads.empty()) continue;
    Edit e(std::move(graph));
    for (const size_t at : grads) {
      const Node n = e.graph().nodes[at];
      const Origin origin(e.builder(), "sam", Role::update);
      Values here, weights, moved;
      for (const ValueId v : n.outputs) here.push_back(e.value(v));
      for (size_t i = 1; i < n.inputs.size(); ++i) weights.push_back(e.value(n.inputs[i]));
      Value total = sum_all(square(here[0]));
      for (size_t i = 1; i < here.size(); ++i) total = total + sum_all(square(here[i]));
      const Value factor = rho / (sqrt(total) + 1e-12);
      for (size_t i = 0; i < here.size(); ++i) moved.push_back(weights[i] + here[i] * factor);
      const Value loss = clone_cone(e.builder(), e.value(n.inputs[0]), weights, moved);
      const Values there = grad(loss, moved);
      for (size_t i = 0; i < here.size(); ++i) e.redirect(here[i], there[i]);
    }
    graph = e.finish();
  }
  return set;
}

}  // namespace lathe
