#include "passes/techniques/gate.h"

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "passes/techniques/gradients.h"

namespace lathe {

StepSet gate(StepSet set, const PassContext& context) {
  const bool at_gradient = context.options.get<GateOptions>().at_gradient;
  for (Graph& graph : set.graphs) {
    const std::vector<GradientNode> gradients = gradients_of(graph);
    const std::vector<int32_t> of = gradient_of_values(graph, gradients);
    const Output* loss = find_output(graph, OutputKind::metric, "loss");
    std::vector<size_t> gated;
    for (size_t i = 0; i < graph.outputs.size(); ++i)
      if (const Output& o = graph.outputs[i]; o.kind == OutputKind::state)
        if (const StateSpec* s = set.state.find(o.name); s && s->gated) gated.push_back(i);
    if (gated.empty() || (gradients.empty() && !loss)) continue;

    const ValueId loss_value = loss ? loss->value : -1;
    Edit e(std::move(graph));
    const Origin origin(e.builder(), "gate", Role::update);
    const Value loss_ok = loss_value >= 0 ? is_finite(e.value(loss_value)) : Value();
    const auto both = [&](Value flag) { return loss_ok.valid() ? logical_and(loss_ok, flag) : flag; };
    SquaredGradients s;
    Value all_ok = loss_ok;
    if (!gradients.empty()) {
      s = squares(e, gradients);
      all_ok = both(is_finite(s.total));
    }
    std::vector<Value> own(gradients.size());  // flags of single gradients, made where they are wanted
    const auto flag_of = [&](const Output& o) {
      if (!at_gradient || gradients.empty()) return all_ok;
      if (set.state.find(o.name)->kind == InputKind::buffer) return loss_ok.valid() ? loss_ok : all_ok;
      const int32_t one = of[static_cast<size_t>(o.value)];
      if (one < 0) return all_ok;
      Value& flag = own[static_cast<size_t>(one)];
      if (!flag.valid()) flag = both(is_finite(s.each[static_cast<size_t>(one)]));
      return flag;
    };
    for (const size_t i : gated) {
      const Output o = e.graph().outputs[i];
      e.set_output(i, select(flag_of(o), e.value(o.value), e.value(o.updates)));
    }
    if (!gradients.empty()) {
      e.builder().output(sqrt(s.total), OutputKind::metric, "grad_norm");
      e.builder().output(cast(all_ok, DType::f32), OutputKind::metric, "accepted");
    }
    graph = e.finish();
  }
  return set;
}

}  // namespace lathe
