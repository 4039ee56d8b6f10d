#include "passes/partition/partition.h"

#include <algorithm>

#include "ops/expand_nodes.h"
#include "passes/dce.h"
#include "passes/partition/division.h"

namespace lathe {
namespace {

Placement placement_of(const Graph& g, const Input& in, int64_t samples) {
  if (in.kind == InputKind::gradient) return kPartial;
  const Shape& shape = g.type(in.value).shape;
  const bool is_divided = in.kind == InputKind::batch && samples > 0 && shape.ndim() > 0 && shape[0] % samples == 0;
  return is_divided ? split_along(0) : kReplicated;
}

Graph partition_graph(Graph g, const PassContext& context) {
  const int64_t samples = samples_of(g);
  g = dce(std::move(g), context);  // what nobody reads shall not be sent
  Placements inputs, outputs;
  for (const Input& in : g.inputs) inputs.push_back(placement_of(g, in, samples));
  for (const Output& o : g.outputs) {
    const auto updated = std::ranges::find(g.inputs, o.updates, &Input::value);
    const bool is_sum = o.kind == OutputKind::state && updated->kind == InputKind::gradient;
    outputs.push_back(is_sum ? kPartial : kReplicated);
  }
  CompositeRows composites(context.mesh.ranks, samples);
  Labels labels;
  g = expand_marked(std::move(g), [&](const Graph& now, const std::vector<bool>&) {
    labels = label(now, samples, inputs, outputs, composites);
    return labels.open;
  });
  return divide(g, labels, context.mesh, samples, inputs, outputs);
}

}  // namespace

int64_t samples_of(const Graph& g) {
  int64_t samples = 0;
  for (const Input& in : g.inputs) {
    const Shape& shape = g.type(in.value).shape;
    if (in.kind == InputKind::batch && shape.ndim() > 0 && shape[0] > 0)
      samples = samples == 0 ? shape[0] : std::min(samples, shape[0]);
  }
  return samples;
}

StepSet partition(StepSet set, const PassContext& context) {
  if (context.mesh.ranks == 1) return set;
  return each_graph<partition_graph>(std::move(set), context);
}

}  // namespace lathe
