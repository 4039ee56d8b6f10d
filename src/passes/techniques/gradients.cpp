#include "passes/techniques/gradients.h"

#include <algorithm>

#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/gradient.h"
#include "ops/reduce.h"

namespace lathe {

std::vector<GradientNode> gradients_of(const Graph& g) {
  std::vector<GradientNode> out;
  for (size_t i = 0; i < g.nodes.size(); ++i)
    if (const Node& n = g.nodes[i]; n.op == &gradient_op)
      out.push_back({i, n.inputs[0], n.outputs[0], n.get<GradientParams>().of});
  return out;
}

bool has_gradients(const Graph& g) {
  return std::ranges::any_of(g.nodes, [](const Node& n) { return n.op == &gradient_op; });
}

void check_marked(const StepSet& set, std::string_view technique) {
  for (const Graph& g : set.graphs) {
    std::vector<bool> unmarked(g.types.size(), false);  // it comes from grad() without a mark on the way
    for (const Node& n : g.nodes) {
      const bool comes = n.op == &grad_op ||
                         std::ranges::any_of(n.inputs, [&](ValueId v) { return unmarked[static_cast<size_t>(v)]; });
      for (const ValueId v : n.outputs) unmarked[static_cast<size_t>(v)] = comes && n.op != &gradient_op;
    }
    for (const Output& o : g.outputs) {
      if (o.kind != OutputKind::state || !unmarked[static_cast<size_t>(o.value)]) continue;
      // Running statistics may depend on gradients: those behind a step of sam do.
      const StateSpec* row = set.state.find(o.name);
      LATHE_USER_CHECK(
          row && row->kind != InputKind::param && row->kind != InputKind::optimizer,
          "{}: graph \"{}\" updates \"{}\" by grad(), but does not mark the gradient, so that the technique would pass "
          "it by; expected gradient(g, \"NAME\") around what the update reads, as train_set() builds it",
          technique, g.name, o.name);
    }
  }
}

std::vector<int32_t> gradient_of_values(const Graph& g, const std::vector<GradientNode>& gradients) {
  std::vector<int32_t> of(g.types.size(), kNoGradient);
  size_t next = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    int32_t from = kNoGradient;
    for (const ValueId v : n.inputs) {
      const int32_t in = of[static_cast<size_t>(v)];
      if (in == kNoGradient || in == from) continue;
      from = from == kNoGradient ? in : kManyGradients;
    }
    if (next < gradients.size() && gradients[next].node == i) from = static_cast<int32_t>(next++);
    for (const ValueId v : n.outputs) of[static_cast<size_t>(v)] = from;
  }
  return of;
}

SquaredGradients squares(Edit& e, const std::vector<GradientNode>& gradients) {
  SquaredGradients s;
  for (const GradientNode& g : gradients) s.each.push_back(sum_all(square(e.value(g.out))));
  s.total = s.each[0];
  for (size_t i = 1; i < s.each.size(); ++i) s.total = s.total + s.each[i];
  return s;
}

const Output* find_output(const Graph& g, OutputKind kind, std::string_view name) {
  const auto found = std::ranges::find_if(g.outputs, [&](const Output& o) { return o.kind == kind && o.name == name; });
  return found == g.outputs.end() ? nullptr : &*found;
}

void add_metric(Edit& e, Value value, std::string_view name, std::string_view pass) {
  for (const Output& o : e.graph().outputs)
    LATHE_USER_CHECK(o.kind == OutputKind::state || o.name != name,
                     "graph \"{}\": the pass {} adds a metric \"{}\"; expected no other output of that name, got {}",
                     e.graph().name, pass, name, o.kind == OutputKind::metric ? "a metric" : "a result");
  e.builder().output(value, OutputKind::metric, std::string(name));
}

}  // namespace lathe
