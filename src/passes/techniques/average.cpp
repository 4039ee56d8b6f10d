#include "passes/techniques/average.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "passes/techniques/gradients.h"

namespace lathe {
namespace {

bool is_averaged(const StateSpec& s) { return s.gated && (s.kind == InputKind::param || s.kind == InputKind::buffer); }

StateSpec average_of(const StateSpec& s) {
  return {std::string(kAveragePrefix) + s.name,
          s.type,
          InputKind::optimizer,
          s.init,
          s.file,
          s.name,
          s.name,
          false,
          StateFile::average,
          s.name};
}

bool writes(const Graph& g, std::string_view name) { return find_output(g, OutputKind::state, name) != nullptr; }

// The graph writes the state, or one that accumulates the gradients which it applies.
bool owns(const Graph& g, std::string_view name, const StepSet& set) {
  if (writes(g, name)) return true;
  const auto adds_for = [&](const Graph& half) {
    return std::ranges::any_of(
        g.inputs, [&](const Input& in) { return in.kind == InputKind::gradient && writes(half, in.name); });
  };
  return std::ranges::any_of(set.graphs, [&](const Graph& half) { return writes(half, name) && adds_for(half); });
}

// The states whose averages each training graph advances: of several networks each its own. A state that no step owns
// is averaged in all of them.
std::vector<std::vector<StateSpec>> averaged_by(const StepSet& set) {
  std::vector<std::vector<StateSpec>> out(set.graphs.size());
  for (const StateSpec& s : set.state) {
    if (!is_averaged(s)) continue;
    std::vector<size_t> steps, owners;
    for (size_t i = 0; i < set.graphs.size(); ++i) {
      if (!has_gradients(set.graphs[i])) continue;
      steps.push_back(i);
      if (owns(set.graphs[i], s.name, set)) owners.push_back(i);
    }
    for (const size_t i : owners.empty() ? steps : owners) out[i].push_back(s);
  }
  return out;
}

// Written so that shares of 0 and 1 keep every bit.
Graph keep_averages(Graph graph, StepSet& set, const std::vector<StateSpec>& averaged) {
  Edit e(std::move(graph));
  Builder& b = e.builder();
  const Origin origin(b, "average", Role::update);
  const Value share = b.input({DType::f32, {}}, InputKind::step, "average");
  const Value rest = 1.0 - share;
  for (const StateSpec& s : averaged) {
    const Output* written = find_output(e.graph(), OutputKind::state, s.name);
    // Written by another graph: this one reads it.
    const Value now = written ? e.value(written->value) : e.state_input(s, set.state);
    const Value average = e.state_input(average_of(s), set.state);
    b.update(average, average * rest + now * share);
  }
  return e.finish();
}

Graph read_averages(Graph graph, StepSet& set) {
  for (Input& in : graph.inputs) {
    const StateSpec* s = is_state(in.kind) ? set.state.find(in.name) : nullptr;
    if (!s || !is_averaged(*s)) continue;
    StateSpec average = average_of(*s);
    in.kind = average.kind;
    in.name = average.name;
    set.state.add(std::move(average));
  }
  return graph;
}

}  // namespace

void AverageOptions::check(const PassOptions& options, RuleReport& report) {
  const auto& o = options.get<AverageOptions>();
  if (o.ema > 0 && o.swa_from > 0)
    report.fail({"train.swa_from", "train.ema"},
                "expected one average of the weights, got train.ema and train.swa_from");
}

StepSet average(StepSet set, const PassContext&) {
  const auto writes_state = [](const Graph& g) {
    return std::ranges::any_of(g.outputs, [](const Output& o) { return o.kind == OutputKind::state; });
  };
  // Training first: its rows are those that others read.
  const auto averaged = averaged_by(set);
  for (size_t i = 0; i < set.graphs.size(); ++i)
    if (has_gradients(set.graphs[i])) set.graphs[i] = keep_averages(std::move(set.graphs[i]), set, averaged[i]);
  for (Graph& g : set.graphs)
    if (!writes_state(g)) g = read_averages(std::move(g), set);
  drop_unused_state(set);
  return set;
}

}  // namespace lathe
