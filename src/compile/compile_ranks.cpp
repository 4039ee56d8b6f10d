#include "compile/compile_ranks.h"

namespace lathe {
namespace {

// Samples that a rank has of each kind of batch, and units of state that is split.
std::vector<int64_t> parts_of(const Compiled& c, int ranks, int rank) {
  std::vector<int64_t> out;
  const auto add = [&](int64_t samples) { out.push_back(part_of(samples, c.loader.blocks, ranks, rank).size()); };
  if (c.steps.batch > 0) {
    add(c.steps.batch);
    add(c.steps.samples % c.steps.batch);
  }
  if (c.eval_batch > 0) {
    add(c.eval_batch);
    add(c.data.test % c.eval_batch);
    add(c.data.validation % c.eval_batch);
  }
  for (const StateSpec& s : c.state)
    if (s.part.is_part()) out.push_back(part_of(s.part.whole[static_cast<size_t>(s.part.axis)], ranks, rank).size());
  return out;
}

}  // namespace

std::vector<RankPlan> compile_ranks(const Recipe& r, const DataSpec& data, const CompileOptions& options, int ranks) {
  CompileOptions o = options;
  o.mesh = {ranks, 0};
  std::vector<RankPlan> out;
  out.push_back({{0, 1}, compile(r, data, o)});
  std::vector<int64_t> parts = parts_of(out[0].compiled, ranks, 0);
  o.passes.verify = false;  // graphs of other ranks differ by sizes alone; a rank that runs checks its own
  for (int rank = 1; rank < ranks; ++rank) {
    std::vector<int64_t> own = parts_of(out[0].compiled, ranks, rank);
    if (own == parts) {
      out.back().ranks.last = rank + 1;
      continue;
    }
    o.mesh.rank = rank;
    out.push_back({{rank, rank + 1}, compile(r, data, o)});
    parts = std::move(own);
  }
  return out;
}

}  // namespace lathe
