#include "passes/techniques/loss_scale.h"

#include <algorithm>
#include <cmath>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "passes/techniques/gradients.h"

namespace lathe {
namespace {

StateSpec scalar_state(const char* name, double first) {
  return {name, {DType::f32, {}}, InputKind::optimizer, Init::constant(first), {}, {}, {}, false, StateFile::optimizer};
}

// The scale after a step that was accepted, or not.
void adapt(Edit& e, Value scale, int64_t growth, StateTable& table) {
  Builder& b = e.builder();
  const ValueId accepted = find_output(e.graph(), OutputKind::metric, "accepted")->value;
  const Value ok = greater(e.value(accepted), constant_like(e.value(accepted), 0));
  const Value streak = e.state_input(scalar_state("gradient_scale.streak", 0), table);
  const Value longer = streak + 1.0;
  const Value grows = equal(longer, constant_like(longer, static_cast<double>(growth)));
  const Value zero = constant_like(streak, 0.0), grown = minimum(scale * 2.0, constant_like(scale, kLargestLossScale));
  add_metric(e, scale, "gradient_scale", "loss_scale");
  b.update(streak, select(ok, select(grows, zero, longer), zero));
  b.update(scale, select(ok, select(grows, grown, scale), maximum(scale * 0.5, constant_like(scale, 1.0))));
}

}  // namespace

void LossScaleOptions::check(const PassOptions& options, RuleReport& report) {
  const double scale = options.get<LossScaleOptions>().scale;
  if (int exponent = 0; computes_in_f16(options) && std::frexp(scale, &exponent) != 0.5)
    report.fail({"train.loss_scale"}, fmt::format("expected a power of two, got {}", scale));
}

StepSet loss_scale(StepSet set, const PassContext& context) {
  const LossScaleOptions& o = context.options.get<LossScaleOptions>();
  if (!computes_in_f16(context.options) || (o.scale == 1 && o.growth == 0)) return set;
  for (Graph& graph : set.graphs) {
    const bool adapts = o.growth > 0 && find_output(graph, OutputKind::metric, "accepted");
    std::vector<size_t> grads;
    for (size_t i = 0; i < graph.nodes.size(); ++i)
      if (graph.nodes[i].op == &grad_op) grads.push_back(i);
    if (grads.empty() && !adapts) continue;
    Edit e(std::move(graph));
    const Origin origin(e.builder(), "gradient_scale", Role::update);
    const Value scale = o.growth > 0 ? e.state_input(scalar_state("gradient_scale", o.scale), set.state) : Value();
    const Value back = scale.valid() && !grads.empty() ? 1.0 / scale : Value();
    for (const size_t at : grads) {
      const Node n = e.graph().nodes[at];
      const Value loss = e.value(n.inputs[0]);
      e.set_input(at, 0, scale.valid() ? loss * scale : loss * o.scale);
      for (const ValueId v : n.outputs)
        e.redirect(e.value(v), back.valid() ? e.value(v) * back : e.value(v) * (1 / o.scale));
    }
    if (adapts) adapt(e, scale, o.growth, set.state);
    graph = e.finish();
  }
  return set;
}

}  // namespace lathe
