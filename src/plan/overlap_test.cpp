// Lanes side by side: collectives start early, their results are read late, and nothing waits for memory.
#include "plan/overlap.h"

#include <gtest/gtest.h>

#include "ops/collective.h"
#include "plan/lanes.h"
#include "plan/plan.h"
#include "plan/shadow.h"
#include "plan/test_graphs.h"

namespace lathe {
namespace {

using testing::check_set;
using testing::plain_table;
using testing::random_graph;
using testing::with_lanes;

constexpr int64_t kGradientBytes = 64 * 64 * 4;  // of each gradient

// A chain backward; each of its values gives a gradient that is added up over ranks and updates a weight.
Graph backward_chain(int layers, bool clip) {
  Builder b("chain");
  Value x = b.input({DType::f32, {64, 64}}, InputKind::batch, "x");
  Values sums, weights;
  Value all;
  for (int i = 0; i < layers; ++i) {
    x = tanh(matmul(x, x));
    sums.push_back(all_reduce(matmul(x, x, true), 4));
    weights.push_back(b.input({DType::f32, {64, 64}}, InputKind::param, fmt::format("w{}", i)));
    if (!clip) {
      b.update(weights.back(), weights.back() - sums.back());
      continue;
    }
    const Value size = sum_all(square(sums.back()));
    all = all.valid() ? all + size : size;
  }
  for (size_t i = 0; clip && i < sums.size(); ++i) b.update(weights[i], weights[i] - sums[i] / sqrt(all));
  b.output(sum_all(x), OutputKind::metric, "loss");
  return b.finish();
}

// The plain kernels, and one for all_reduce on the communication lane.
KernelTable table_with_sums() {
  std::vector<KernelTable::Row> rows;
  for (KernelTable::Row r : ref_kernels()) {
    r.candidate.workspace = nullptr;
    rows.push_back(r);
    if (r.op != "tanh") continue;
    r.op = "all_reduce";
    r.candidate.lane = Lane::communication;
    rows.push_back(r);
  }
  return KernelTable(rows);
}

Program planned(const Graph& g, int64_t in_flight, int64_t* arena = nullptr) {
  ProgramSet set = plan({g}, {}, table_with_sums(), {.in_flight = in_flight});
  check_set(set, {});
  if (arena) *arena = set.arena_bytes;
  return std::move(set.programs[0]);
}

// Where each collective starts, and where the first launch waits for it or one behind it.
struct Span {
  size_t start = 0, waited = 0;
};
std::vector<Span> spans_of(const Program& p) {
  std::vector<Span> out;
  for (size_t i = 0; i < p.launches.size(); ++i) {
    if (p.launches[i].lane == Lane::compute) continue;
    Span s{i, p.launches.size()};
    for (size_t k = p.launches.size(); k-- > i + 1;)
      for (const int32_t w : p.launches[k].waits)
        if (p.launches[k].lane == Lane::compute && w >= static_cast<int32_t>(i)) s.waited = k;
    out.push_back(s);
  }
  return out;
}

TEST(Overlap, ReadersComeWhenNothingElseIsLeft) {
  for (const bool clip : {false, true}) {
    const Program p = planned(backward_chain(8, clip), int64_t{1} << 40);
    const std::vector<Span> spans = spans_of(p);
    ASSERT_EQ(spans.size(), 8u);
    size_t last_product = 0;
    for (size_t i = 0; i < p.launches.size(); ++i)
      if (p.launches[i].node.is("matmul")) last_product = i;
    for (const Span& s : spans) {
      EXPECT_TRUE(p.launches[s.start - 1].node.is("matmul")) << "as soon as its input is there";
      EXPECT_GT(s.waited, last_product);
    }
  }
}

TEST(Overlap, NoneInFlightIsOneAfterTheOther) {
  const Program p = planned(backward_chain(6, false), 0);
  for (const Span& s : spans_of(p)) EXPECT_EQ(s.waited, s.start + 1);
}

// Never more bytes than allowed, and as many as that.
TEST(Overlap, BytesInFlightAreKept) {
  for (const int64_t most : {1, 2, 3, 5}) {
    int64_t arena = 0, unbounded = 0;
    const Program p = planned(backward_chain(12, false), most * kGradientBytes, &arena);
    planned(backward_chain(12, false), int64_t{1} << 40, &unbounded);
    EXPECT_LT(arena, unbounded);
    int64_t now = 0, highest = 0;
    std::set<ValueId> flying;
    for (const Launch& l : p.launches) {
      if (l.lane != Lane::compute) flying.insert(l.node.outputs[0]);
      for (const ValueId v : l.node.inputs) flying.erase(v);
      now = static_cast<int64_t>(flying.size());
      highest = std::max(highest, now);
    }
    EXPECT_EQ(highest, most);
  }
}

// Only what reads a result waits for it: nothing is given memory that is still in use.
TEST(Overlap, NothingWaitsForMemory) {
  for (const int64_t most : {1, 4, 100}) {
    const Program p = planned(backward_chain(10, false), most * kGradientBytes);
    for (const Launch& l : p.launches)
      for (const int32_t w : l.waits) {
        if (w < 0 || l.lane != Lane::compute) continue;
        const ValueIds& made = p.launches[static_cast<size_t>(w)].node.outputs;
        EXPECT_TRUE(
            std::ranges::any_of(l.node.inputs, [&](ValueId v) { return std::ranges::find(made, v) != made.end(); }));
      }
  }
}

// On graphs of any kind, with ops of any kind on other lanes.
TEST(Overlap, RandomGraphsKeepEveryValue) {
  for (uint32_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const auto table = with_lanes(seed % 2 ? plain_table() : ref_backend().kernels(),
                                  {{"tanh", Lane::communication}, {"transpose", Lane::transfer}});
    for (const int64_t in_flight : {0, 600, 1 << 20})
      check_set(plan({random_graph(seed, 10 + static_cast<int>(seed))}, {}, table, {.in_flight = in_flight}), {});
  }
}

// Where memory is short, there is none for what is in flight.
TEST(Overlap, GivesWayToABudget) {
  const Graph g = backward_chain(12, false);
  int64_t tight = 0, roomy = 0;
  planned(g, 0, &tight);
  planned(g, int64_t{1} << 40, &roomy);
  ASSERT_LT(tight, roomy);
  const ProgramSet set = plan({g}, {}, table_with_sums(), {.budget = tight});
  EXPECT_LE(set.arena_bytes, tight);
  EXPECT_EQ(recomputed(set.programs[0]).launches, 0);
}

}  // namespace
}  // namespace lathe
