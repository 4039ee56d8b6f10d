#include "plan/recompute.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "ir/interpret.h"
#include "passes/check/random_graph.h"
#include "passes/pass.h"
#include "plan/budget.h"
#include "plan/curve.h"
#include "plan/shadow.h"
#include "plan/test_graphs.h"

namespace lathe {
namespace {

using testing::check_set;
using testing::conv_step;
using testing::mlp_step;
using testing::plain_table;

const Target& toy_target() {
  static const Target target;
  return target;
}

// A random net with its gradients, as the plan gets it. Fused, so that several outputs and in-place work occur.
Graph random_step(uint64_t seed, int nodes) {
  Target target;
  target.native_ops = ref_backend().kernels().ops();
  return run_pipeline(lathe::random_graph(seed, {.nodes = nodes, .gradient = true}), {target});
}

int64_t scratch_of(const ProgramSet& set) { return set.programs[0].memory.scratch; }

// The smallest budget that is reached, from the refusal of one that is not.
int64_t smallest_of(const Graph& g, const KernelTable& table) {
  try {
    plan({g}, {}, table, {.budget = 1});
  } catch (const BudgetError& e) {
    return e.smallest();
  }
  return 0;
}

TEST(Recompute, ModelOfLifetimesAgreesWithTheStorage) {
  std::vector<Graph> graphs{mlp_step(16, {32, 64, 64, 8}), conv_step(2, 8, 4, 5)};
  for (uint64_t seed = 0; seed < 20; ++seed) graphs.push_back(random_step(seed, 40));
  const KernelTable aside =
      testing::with_lanes(ref_backend().kernels(),
                          {{"tanh", Lane::communication}, {"matmul", Lane::communication}, {"mul", Lane::transfer}});
  for (size_t i = 0; i < 2 * graphs.size(); ++i) {
    const Graph& g = graphs[i / 2];
    SCOPED_TRACE(g.name);
    const Drafts all = make_drafts({g}, {}, i % 2 ? aside : ref_backend().kernels(), {});
    const Draft& d = all.drafts[0];
    const LiveModel model(d.graph, d.facts, d.order, d.storage, workspaces(all.choices[0]), lanes(all.choices[0]), 64);
    Recompute walk(model, {});
    EXPECT_EQ(walk.peak(), find_peak(d.storage.slots, 64).bytes);
    int64_t last = walk.peak();
    for (int steps = 0; steps < 60 && walk.lower(); ++steps) {
      EXPECT_LE(walk.peak(), last);
      last = walk.peak();
    }
    const auto reruns = walk.fit(last);
    ASSERT_TRUE(reruns);
    LiveProfile profile;
    model.simulate(*reruns, profile);
    WithReruns w = apply_reruns(d.graph, all.choices[0], d.facts, d.order, *reruns);
    std::vector<int32_t> order;
    for (size_t i = 0; i < w.graph.nodes.size(); ++i) order.push_back(static_cast<int32_t>(i));
    const Draft after = make_draft(std::move(w.graph), order, w.choices);
    EXPECT_EQ(profile.peak, find_peak(after.storage.slots, 64).bytes);
    EXPECT_LE(profile.peak, last);
  }
}

TEST(Recompute, RandomGraphsKeepTheirValuesAndTheBudget) {
  int with_reruns = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    SCOPED_TRACE(seed);
    const Graph g = random_step(seed, 20 + static_cast<int>(seed));
    const auto inputs = random_inputs(g, seed);
    const auto expected = interpret(g, inputs, Precision::rounded);
    const ProgramSet free = plan({g}, {}, ref_backend().kernels());
    const int64_t least = smallest_of(g, ref_backend().kernels());
    ASSERT_LE(least, free.arena_bytes);
    for (const int64_t budget : {(least + free.arena_bytes) / 2, least}) {
      const ProgramSet set = plan({g}, {}, ref_backend().kernels(), {.budget = budget});
      EXPECT_LE(set.arena_bytes, budget);
      check_set(set, toy_target());
      with_reruns += recomputed(set.programs[0]).launches > 0;
      const auto actual = interpret(set.programs[0].graph, inputs, Precision::rounded);
      ASSERT_EQ(actual.size(), expected.size());
      for (size_t i = 0; i < actual.size(); ++i) EXPECT_EQ(actual[i].data, expected[i].data) << i;
    }
  }
  EXPECT_GT(with_reruns, 12);
}

TEST(Recompute, ArenaInSegmentsKeepsTheBudget) {
  const Graph g = mlp_step(64, std::vector<int64_t>(24, 64));
  Target target;
  target.largest_allocation = 100000;
  const ProgramSet free = plan({g}, target, plain_table());
  ASSERT_GT(free.segments.size(), 3u);
  const int64_t budget = free.arena_bytes - scratch_of(free) / 3;
  const ProgramSet set = plan({g}, target, plain_table(), {.budget = budget});
  EXPECT_LE(set.arena_bytes, budget);
  EXPECT_GT(recomputed(set.programs[0]).launches, 0);
  check_set(set, target);
}

TEST(Recompute, RefusalNamesTheSmallestBudgetAndThatOneWorks) {
  for (const Graph& g : {mlp_step(256, std::vector<int64_t>(12, 64)), conv_step(4, 16, 8, 4)}) {
    SCOPED_TRACE(g.name);
    const int64_t least = smallest_of(g, plain_table());
    ASSERT_GT(least, 0);
    const ProgramSet set = plan({g}, {}, plain_table(), {.budget = least});
    EXPECT_LE(set.arena_bytes, least);
    EXPECT_LT(2 * scratch_of(set), scratch_of(plan({g}, {}, plain_table())));
    try {
      plan({g}, {}, plain_table(), {.budget = least * 98 / 100});
      ADD_FAILURE() << "a smaller budget than the smallest was met";
    } catch (const BudgetError& e) {
      EXPECT_EQ(e.smallest(), least);
      EXPECT_EQ(e.exit_code(), Exit::os_error);
      EXPECT_NE(std::string(e.what()).find(std::to_string(least)), std::string::npos) << e.what();
    }
  }
}

// A chain of n equal layers: with the results of every sqrt(n)-th kept, each layer runs at most once more.
TEST(Recompute, DeepChainNeedsLittleMoreWork) {
  const Graph g = mlp_step(1024, std::vector<int64_t>(64, 32));
  const ProgramSet free = plan({g}, {}, plain_table());
  const ProgramSet set =
      plan({g}, {}, plain_table(), {.budget = free.arena_bytes - scratch_of(free) + scratch_of(free) / 3});
  const Recomputed extra = recomputed(set.programs[0]);
  EXPECT_GT(extra.launches, 0);
  EXPECT_LE(extra.flops_percent, 34);
}

TEST(Recompute, WhatReadsStateDoesNotRunAfterItsUpdate) {
  // The update of w needs y only; running y = x * w again for the second use would read the new w.
  Builder b("late");
  const Value w = b.input({DType::f32, {256}}, InputKind::param, "w");
  const Value x = b.input({DType::f32, {256}}, InputKind::batch, "x");
  const Value y = tanh(x * w);
  b.update(w, w - y * 0.5);
  Value z = matmul(reshape(y, {256, 1}), reshape(x, {1, 256}));  // large: the peak
  b.output(sum_all(z) + sum_all(y * x), OutputKind::metric, "m");
  const Graph g = b.finish();
  const auto inputs = random_inputs(g, 1);
  const auto expected = interpret(g, inputs, Precision::rounded);
  const int64_t least = smallest_of(g, plain_table());
  const ProgramSet set = plan({g}, {}, plain_table(), {.budget = least});
  check_set(set, toy_target());
  const auto actual = interpret(set.programs[0].graph, inputs, Precision::rounded);
  for (size_t i = 0; i < actual.size(); ++i) EXPECT_EQ(actual[i].data, expected[i].data);
}

TEST(Recompute, TwentyThousandNodesDoNotExplode) {
  const Graph deep = mlp_step(16, std::vector<int64_t>(900, 64));
  const ProgramSet free = plan({deep}, {}, plain_table());
  const int64_t budget = free.arena_bytes - scratch_of(free) / 2;
  const std::clock_t start = std::clock();  // of this process: the machine may be busy
  const ProgramSet set = plan({deep}, {}, plain_table(), {.budget = budget});
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  RecordProperty("nodes", static_cast<int>(deep.nodes.size()));
  RecordProperty("milliseconds", static_cast<int>(seconds * 1e3));
  EXPECT_LE(set.arena_bytes, budget);
  EXPECT_LT(seconds, 10.0);
}

// Where packing loses bytes for some reruns, the plan must not fall to the smallest one.
TEST(Recompute, NoBudgetIsMuchDearerThanASmallerOne) {
  for (const Graph& g : {conv_step(4, 16, 8, 6), conv_step(8, 12, 16, 9), mlp_step(64, {96, 200, 64, 128, 80, 32})}) {
    const int64_t whole = plan({g}, {}, plain_table()).arena_bytes, least = smallest_of(g, plain_table());
    double cheapest = 0;  // of the smaller ones
    for (int i = 0; i <= 40; ++i) {
      const int64_t budget = least + (whole - least) * i / 40;
      const ProgramSet set = plan({g}, {}, plain_table(), {.budget = budget});
      const double more = recomputed(set.programs[0]).flops;
      if (i > 0) {
        EXPECT_LE(more, 2.5 * cheapest) << budget << " bytes, " << i;
      }
      cheapest = i == 0 ? more : std::min(cheapest, more);
    }
  }
}

TEST(Recompute, SameGraphSamePlan) {
  const Graph g = conv_step(4, 16, 8, 6);
  const ProgramSet free = plan({g}, {}, plain_table());
  const int64_t budget = free.arena_bytes - scratch_of(free) / 2;
  std::string first;
  for (int i = 0; i < 2; ++i) {
    const std::string text = print(plan({g}, {}, plain_table(), {.budget = budget}).programs[0].graph);
    if (i == 0) first = text;
    EXPECT_EQ(text, first);
  }
}

TEST(Curve, FallsFromTheWholeArenaToTheSmallest) {
  const Graph g = conv_step(4, 16, 8, 6);
  const auto curve = memory_curve({g}, {}, plain_table(), {}, {1e11, 1e10}, 8);
  ASSERT_GE(curve.size(), 4u);
  EXPECT_EQ(curve.front().arena_bytes, plan({g}, {}, plain_table()).arena_bytes);
  EXPECT_EQ(curve.front().launches, 0);
  EXPECT_LE(curve.back().arena_bytes, smallest_of(g, plain_table()));
  EXPECT_EQ(curve.back().budget, smallest_of(g, plain_table()));
  for (size_t i = 0; i < curve.size(); ++i) {
    EXPECT_LE(curve[i].arena_bytes, curve[i].budget);
    EXPECT_GE(curve[i].seconds, curve.front().seconds);
    if (i > 0) {
      EXPECT_LT(curve[i].arena_bytes, curve[i - 1].arena_bytes);
    }
    const ProgramSet set = plan({g}, {}, plain_table(), {.budget = curve[i].budget});
    EXPECT_EQ(set.arena_bytes, curve[i].arena_bytes);
    EXPECT_EQ(recomputed(set.programs[0]).flops, curve[i].extra_flops);
  }
}

}  // namespace
}  // namespace lathe
