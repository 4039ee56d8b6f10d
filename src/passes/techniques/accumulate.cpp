#include "passes/techniques/accumulate.h"

#include <algorithm>
#include <string>

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

struct Update {                        // The second half of one or more training graphs.
  Graph graph;                         // it
  std::string of;                      // the first of them
  std::vector<std::string> gradients;  // parameters whose sums it applies
  size_t last = 0;                     // the last of them, by its place in the set
};

// The update that a graph shares with those before it, or its own. Inputs that a step has no use for, like the indices
// of samples without dropout, are in both halves, and shorter in a tail batch.
void add_update(std::vector<Update>& updates, Graph half, const Graph& whole,
                const std::vector<GradientNode>& gradients, size_t place) {
  for (Update& u : updates)
    if (structurally_equal(drop_unused_inputs(u.graph), drop_unused_inputs(half))) {
      u.last = place;
      return;
    }
  Update fresh{std::move(half), whole.name, {}, place};
  for (const GradientNode& n : gradients) {
    for (const Update& u : updates)
      LATHE_USER_CHECK(std::ranges::find(u.gradients, n.of) == u.gradients.end(),
                       "accumulate: graphs \"{}\" and \"{}\" update \"{}\" in different ways, but it has one sum of "
                       "gradients; expected one update of a parameter",
                       u.of, whole.name, n.of);
    fresh.gradients.push_back(n.of);
  }
  updates.push_back(std::move(fresh));
}

// A lone update is "update"; of several, the one of "train" is.
std::string name_of(const Update& u, size_t count) {
  return count == 1 || u.of == "train" ? "update" : "update_" + u.of;
}

void check_names(const StepSet& set) {
  for (size_t i = 0; i < set.graphs.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      LATHE_USER_CHECK(set.graphs[i].name != set.graphs[k].name,
                       "accumulate: makes a graph \"{0}\" of a training step, but the set has two of that name now; "
                       "expected no other graph named \"{0}\"",
                       set.graphs[i].name);
}

}  // namespace

StepSet accumulate(StepSet set, const PassContext&) {
  std::vector<Graph> graphs = std::move(set.graphs);
  set.graphs.clear();
  std::vector<Update> updates;
  for (size_t i = 0; i < graphs.size(); ++i) {
    Graph& g = graphs[i];
    const std::vector<GradientNode> gradients = gradients_of(g);
    if (gradients.empty()) continue;
    // Which half an effect belongs to is not for this pass to guess.
    for (const Node& n : g.nodes)
      LATHE_USER_CHECK(!n.op->has(kOrdered),
                       "accumulate: expected no ordered node, got {}; a pass behind it may add it", n.op->name());
    const std::vector<bool> of_update = update_outputs(g, gradients);
    add_update(updates, updating(g, set, gradients, of_update), g, gradients, i);
    g = accumulating(g, set, gradients, of_update);
  }
  for (size_t i = 0; i < graphs.size(); ++i) {
    set.graphs.push_back(std::move(graphs[i]));
    for (Update& u : updates)
      if (u.last == i) {
        u.graph.name = name_of(u, updates.size());
        set.graphs.push_back(std::move(u.graph));
      }
  }
  check_names(set);
  return set;
}

}  // namespace lathe
