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

// Written so that shares of 0 and 1 keep every bit.
Graph keep_averages(Graph graph, StepSet& set) {
  Edit e(std::move(graph));
  Builder& b = e.builder();
  const Origin origin(b, "average", Role::update);
  const Value share = b.input({DType::f32, {}}, InputKind::step, "average");
  const Value rest = 1.0 - share;
  std::vector<StateSpec> averaged;
  for (const StateSpec& s : set.state)
    if (is_averaged(s)) averaged.push_back(s);
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

StepSet average(StepSet set, const PassContext& context) {
  if (!context.options.get<AverageOptions>().on) return set;
  const auto writes_state = [](const Graph& g) {
    return std::ranges::any_of(g.outputs, [](const Output& o) { return o.kind == OutputKind::state; });
  };
  // Training first: its rows are those that others read.
  for (Graph& g : set.graphs)
    if (has_gradients(g)) g = keep_averages(std::move(g), set);
  for (Graph& g : set.graphs)
    if (!writes_state(g)) g = read_averages(std::move(g), set);
  drop_unused_state(set);
  return set;
}

}  // namespace lathe
