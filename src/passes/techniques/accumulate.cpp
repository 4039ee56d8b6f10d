#include "passes/techniques/accumulate.h"

#include <algorithm>
#include <optional>

#include "ir/live_nodes.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "passes/techniques/gradients.h"

namespace lathe {
namespace {

// Outputs of the update: what depends on gradients, or is computed for the update alone.
std::vector<bool> update_outputs(const Graph& g, const std::vector<GradientNode>& gradients) {
  const auto def = definitions(g);
  const auto of = gradient_of_values(g, gradients);
  std::vector<bool> out;
  for (const Output& o : g.outputs) {
    const int32_t d = def[static_cast<size_t>(o.value)];
    out.push_back(of[static_cast<size_t>(o.value)] != kNoGradient ||
                  (d >= 0 && g.nodes[static_cast<size_t>(d)].role == Role::update));
  }
  return out;
}

// Inputs that `half` has no use for any more, though the whole step had.
Graph tidy(Graph half, const Graph& whole) {
  half = drop_dead(std::move(half));
  const Graph before = drop_unused_inputs(whole), now = drop_unused_inputs(half);
  std::erase_if(half.inputs, [&](const Input& in) {
    const auto has = [&](const Graph& g) {
      return std::ranges::find(g.inputs, in.name, &Input::name) != g.inputs.end();
    };
    return has(before) && !has(now);
  });
  return half;
}

StateSpec accumulator(const StepSet& set, const GradientNode& g) {
  const StateSpec* p = set.state.find(g.of);
  LATHE_USER_CHECK(p, "gradient of \"{}\": expected the name of a state, got none", g.of);
  return {g.of + ".grad", p->type, InputKind::gradient, Init::constant(0), p->file, {}, g.of, false, StateFile::none};
}

Graph accumulating(const Graph& whole, StepSet& set, const std::vector<GradientNode>& gradients,
                   const std::vector<bool>& updates) {
  Graph g = whole;
  g.name = whole.name.starts_with("train") ? "accumulate" + whole.name.substr(5) : whole.name + "_accumulate";
  size_t k = 0;
  std::erase_if(g.outputs, [&](const Output&) { return updates[k++]; });
  Edit e(std::move(g));
  Builder& b = e.builder();
  const Origin origin(b, "accumulate", Role::update);
  for (const GradientNode& n : gradients) {
    const Value sum = e.state_input(accumulator(set, n), set.state);
    b.update(sum, sum + e.value(n.in));
  }
  return tidy(e.finish(), whole);
}

Graph updating(const Graph& whole, StepSet& set, const std::vector<GradientNode>& gradients,
               const std::vector<bool>& updates) {
  Graph g = whole;
  g.name = "update";
  size_t k = 0;
  std::erase_if(g.outputs, [&](const Output&) { return !updates[k++]; });
  Edit e(std::move(g));
  Builder& b = e.builder();
  const Origin origin(b, "update", Role::update);
  for (const GradientNode& n : gradients) {
    const Value sum = e.state_input(accumulator(set, n), set.state);
    e.set_input(n.node, 0, sum);
    b.update(sum, zeros(b, sum.type()));
  }
  return tidy(e.finish(), whole);
}

}  // namespace

StepSet accumulate(StepSet set, const PassContext& context) {
  if (context.options.get<AccumulateOptions>().batches <= 1) return set;
  std::vector<Graph> graphs = std::move(set.graphs);
  set.graphs.clear();
  std::optional<Graph> update;
  // The update follows the accumulating graphs and stands before those that have no part in training.
  const auto flush = [&] {
    if (update) set.graphs.push_back(std::move(*update));
    update.reset();
  };
  for (Graph& g : graphs) {
    const std::vector<GradientNode> gradients = gradients_of(g);
    if (gradients.empty()) {
      flush();
      set.graphs.push_back(std::move(g));
      continue;
    }
    // Which half an effect belongs to is not for this pass to guess.
    for (const Node& n : g.nodes)
      LATHE_USER_CHECK(!n.op->has(kOrdered),
                       "accumulate: expected no ordered node, got {}; a pass behind it may add it", n.op->name());
    const std::vector<bool> updates = update_outputs(g, gradients);
    set.graphs.push_back(accumulating(g, set, gradients, updates));
    if (!update && !set.find_graph("update")) update = updating(g, set, gradients, updates);
  }
  flush();
  return set;
}

}  // namespace lathe
