#include "passes/partition/shard_state.h"

namespace lathe {
namespace {

// The level from which on a row is split; 0: never.
int64_t level_of(const StateSpec& row, const StateTable& table) {
  switch (row.kind) {
    case InputKind::param: return 3;
    case InputKind::gradient: return 2;
    case InputKind::optimizer: {
      const StateSpec* of = row.of.empty() ? nullptr : table.find(row.of);
      return of && of->kind == InputKind::param ? 1 : 0;
    }
    default: return 0;
  }
}

}  // namespace

int split_axis(const Shape& shape, int ranks) {
  constexpr double kClose = 1.02;  // of the first axis nothing has to be packed: it may be so much worse
  int best = -1;
  double least = 0;
  for (int axis = 0; axis < shape.ndim(); ++axis) {
    if (shape[axis] < ranks) continue;
    const auto largest = static_cast<double>(part_of(shape[axis], ranks, 0).size());
    const double share = largest / static_cast<double>(shape[axis]);
    if (best >= 0 && share * kClose >= least) continue;
    best = axis;
    least = share;
  }
  return best;
}

StepSet shard_state(StepSet set, const PassContext& context) {
  const auto options = context.options.get<ShardOptions>();
  if (context.mesh.ranks == 1 || options.level == 0) return set;
  StateTable rows;
  for (StateSpec row : set.state) {
    const int64_t level = level_of(row, set.state);
    if (level > 0 && level <= options.level && row.type.numel() >= options.least)
      row.part.axis = split_axis(row.type.shape, context.mesh.ranks);
    rows.add(std::move(row));
  }
  set.state = std::move(rows);
  return set;
}

}  // namespace lathe
