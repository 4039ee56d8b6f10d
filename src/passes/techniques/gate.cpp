#include "passes/techniques/gate.h"

#include <algorithm>
#include <array>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "passes/precision.h"
#include "passes/techniques/accumulate.h"
#include "passes/techniques/clip_norm.h"
#include "passes/techniques/gradients.h"

namespace lathe {

namespace {

struct Obstacle {  // An option with which an update cannot be at its gradient.
  bool stands;
  std::string_view key, with, reason;
};

std::array<Obstacle, 4> obstacles(const PassOptions& o) {
  return {{{o.get<ClipNormOptions>().max_norm > 0, "train.clip_norm", "train.clip_norm > 0",
            "the norm is known only when all gradients are"},
           {o.get<AccumulateOptions>().batches > 1, "train.accumulate", "train.accumulate > 1",
            "a gradient is complete only after the last batch"},
           {computes_in_f16(o), "train.precision", "train.precision = \"f16\"",
            "a gradient that overflows must keep all weights as they are"},
           {GateOptions::skips(o.get<GateOptions>()), "train.on_nan", "train.on_nan = \"skip\"",
            "weights changed at earlier gradients could not be taken back"}}};
}

bool is_at_gradient(const PassOptions& o) {
  const std::string& update = o.get<GateOptions>().update;
  return update == "at_gradient" || (update == "auto" && std::ranges::none_of(obstacles(o), &Obstacle::stands));
}

}  // namespace

void GateOptions::check(const PassOptions& o, RuleReport& report) {
  if (o.get<GateOptions>().update != "at_gradient") return;
  for (const Obstacle& it : obstacles(o))
    if (it.stands)
      report.fail(
          {"train.update", it.key},
          fmt::format("expected \"after_all\" or \"auto\" with {}, got \"at_gradient\"; {}", it.with, it.reason));
}

StepSet gate(StepSet set, const PassContext& context) {
  const bool at_gradient = is_at_gradient(context.options);
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
      add_metric(e, sqrt(s.total), "grad_norm", "gate");
      add_metric(e, cast(all_ok, DType::f32), "accepted", "gate");
    }
    graph = e.finish();
  }
  return set;
}

}  // namespace lathe
