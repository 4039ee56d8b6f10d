#include "passes/partition/vote.h"

#include <algorithm>

#include "ops/collective.h"

namespace lathe {
namespace {

// Micro-batches of a step are not: they have nothing to tell each other before its end.
bool ends_a_step(const Graph& g) {
  const auto writes_parameter = [&](const Output& o) {
    return o.kind == OutputKind::state &&
           std::ranges::find(g.inputs, o.updates, &Input::value)->kind == InputKind::param;
  };
  const auto has = [&](OutputKind kind) {
    return std::ranges::find(g.outputs, kind, &Output::kind) != g.outputs.end();
  };
  return std::ranges::any_of(g.outputs, writes_parameter) || (!has(OutputKind::state) && has(OutputKind::metric));
}

Graph vote_graph(Graph g, const PassContext& context) {
  if (!ends_a_step(g)) return g;
  Builder b(std::move(g));
  const Origin origin(b, "vote", Role::update);
  const Value own = b.input({DType::f32, {}}, InputKind::step, kVote);
  b.output(all_reduce(own, context.mesh.ranks), OutputKind::metric, kVote);
  return b.finish();
}

}  // namespace

StepSet vote(StepSet set, const PassContext& context) {
  if (context.mesh.ranks == 1) return set;
  return each_graph<vote_graph>(std::move(set), context);
}

}  // namespace lathe
