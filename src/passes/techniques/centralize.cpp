#include "passes/techniques/centralize.h"

#include <numeric>

#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "passes/techniques/gradients.h"

namespace lathe {
namespace {

Value centred(Value v, double part) {
  Ints inputs(static_cast<size_t>(v.ndim() - 1));
  std::iota(inputs.begin(), inputs.end(), 1);
  const double count = static_cast<double>(v.type().numel() / v.dim(0));
  return v - reduce_sum(v, inputs, true) * (part / count);
}

}  // namespace

StepSet centralize(StepSet set, const PassContext& context) {
  const CentralizeOptions& o = context.options.get<CentralizeOptions>();
  for (Graph& graph : set.graphs) {
    const std::vector<GradientNode> gradients = gradients_of(graph);
    if (gradients.empty()) continue;
    Edit e(std::move(graph));
    const Origin origin(e.builder(), "centralize", Role::update);
    for (const GradientNode& g : gradients)
      if (const Value v = e.value(g.in); v.ndim() >= 2) e.set_input(g.node, 0, centred(v, o.part));
    graph = e.finish();
  }
  return set;
}

}  // namespace lathe
