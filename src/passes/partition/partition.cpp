#include "passes/partition/partition.h"

#include <algorithm>

#include "ops/expand_nodes.h"
#include "passes/dce.h"
#include "passes/partition/blocks.h"
#include "passes/partition/division.h"

namespace lathe {
namespace {

// `sums`: how accumulated gradients lie.
Placement placement_of(const TensorType& type, const StateSpec& row, Placement sums) {
  if (!row.part.is_split()) return row.kind == InputKind::gradient ? sums : kReplicated;
  const auto axis = static_cast<int>(row.part.axis);
  return split_along(axis, type.shape[axis], true);
}

Placement placement_of(const Graph& g, const Input& in, int64_t samples, const StateTable& table, Placement sums) {
  const TensorType& type = g.type(in.value);
  if (is_state(in.kind)) return placement_of(type, *table.find(in.name), sums);
  const Placement split = split_along(0, samples);
  return in.kind == InputKind::batch && can_split(type, split) ? split : kReplicated;
}

Graph partition_graph(Graph g, const StateTable& table, const PassContext& context) {
  const int64_t samples = samples_of(g);
  const Mesh& mesh = context.mesh;
  const int64_t blocks = context.options.get<SameBitsOptions>().used();
  g = dce(std::move(g), context);  // what nobody reads shall not be sent
  // The share of a rank in a sum of gradients depends on the number of ranks.
  const Placement sums = blocks > 0 ? kReplicated : kPartial;
  Placements inputs, outputs, of(g.types.size());
  for (const Input& in : g.inputs) {
    inputs.push_back(placement_of(g, in, samples, table, sums));
    of[index_of(in.value)] = inputs.back();
  }
  for (const Output& o : g.outputs)  // state lies as it did before
    outputs.push_back(o.kind == OutputKind::state ? of[index_of(o.updates)] : kReplicated);
  CompositeRows composites(blocks > 0 ? static_cast<int>(blocks) : mesh.ranks, samples);
  Labels labels;
  g = expand_marked(std::move(g), [&](const Graph& now, const std::vector<bool>&) {
    labels = label(now, inputs, outputs, composites);
    return labels.open;
  });
  if (blocks == 0) return divide(g, labels, mesh, inputs, outputs);
  std::vector<Graph> each;
  const Part own = part_of(blocks, mesh.ranks, mesh.rank);
  for (int64_t k = own.first; k < own.last; ++k)
    each.push_back(divide(g, labels, {static_cast<int>(blocks), static_cast<int>(k)}, inputs, outputs));
  std::vector<bool> split;
  for (const Placement& p : inputs) split.push_back(p.is_split());
  return join_blocks(each, split, mesh, blocks);
}

StateSpec part_of_row(StateSpec row, const Mesh& mesh) {
  if (!row.part.is_split()) return row;
  const auto axis = static_cast<int>(row.part.axis);
  row.part.whole = row.type.shape.to_ints();
  row.part.first = part_of(row.type.shape[axis], mesh.ranks, mesh.rank).first;
  row.type = part_type(row.type, placement_of(row.type, row, kPartial), mesh);
  return row;
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
  const int64_t blocks = context.options.get<SameBitsOptions>().used();
  if (context.mesh.ranks == 1 && blocks == 0) return set;
  if (blocks > 0 && context.mesh.ranks > blocks)
    throw UserError(fmt::format("parallel.same_bits: expected at most {} ranks (parallel.blocks), got {}", blocks,
                                context.mesh.ranks),
                    Exit::bad_recipe);
  if (blocks > 0 && std::ranges::any_of(set.state, [](const StateSpec& s) { return s.part.is_split(); }))
    throw UserError("parallel.same_bits: expected parallel.shard = 0 with it; every rank has the whole state",
                    Exit::bad_recipe);
  for_each_graph(set.graphs,
                 [&](size_t i) { set.graphs[i] = partition_graph(std::move(set.graphs[i]), set.state, context); });
  StateTable rows;
  for (const StateSpec& row : set.state) rows.add(part_of_row(row, context.mesh));
  set.state = std::move(rows);
  return set;
}

}  // namespace lathe
