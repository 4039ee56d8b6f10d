// What recompute promises for whole networks, by planning alone.
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "bench/bench_step.h"
#include "plan/plan.h"

namespace lathe {
namespace {

void expect_bounds(const StepConfig& config, const TensorType& sample, int64_t batch) {
  const Backend& backend = find_backend("cpu");
  const Target target = backend.target({0, 2});
  PipelineOptions unverified;
  unverified.verify = false;
  const Graph g = run_pipeline(train_step(config, sample, batch), {target}, unverified).graphs[0];
  const ProgramSet free = plan({g}, target, backend.kernels());
  const int64_t activations = free.programs[0].memory.of(MemoryClass::activations);
  struct Bound {
    int64_t activations;
    double percent;
  };
  for (const Bound& b : {Bound{activations * 2 / 3, 10}, Bound{activations / 2, 25}}) {
    const int64_t budget = free.arena_bytes - activations + b.activations;
    const ProgramSet set = plan({g}, target, backend.kernels(), {.allow_fallback = false, .budget = budget});
    const Recomputed extra = recomputed(set.programs[0]);
    EXPECT_LE(set.arena_bytes, budget);
    EXPECT_LE(set.programs[0].memory.of(MemoryClass::activations), b.activations);
    EXPECT_LE(extra.flops_percent, b.percent);
    EXPECT_GT(extra.launches, 0);
    std::printf("%.0f MB of activations: budget for %.0f MB, %.0f MB taken, %.2f %% more FLOP in %d launches\n",
                static_cast<double>(activations) / 1e6, static_cast<double>(b.activations) / 1e6,
                static_cast<double>(set.programs[0].memory.of(MemoryClass::activations)) / 1e6, extra.flops_percent,
                static_cast<int>(extra.launches));
  }
}

TEST(Recompute, ResNet50AtTwoThirdsAndHalf) {
  const Workload& w = find_workload("resnet50");
  ASSERT_EQ(w.batch, 16);
  expect_bounds(w.config, w.sample, w.batch);
}

TEST(Recompute, Gpt2AtTwoThirdsAndHalf) {
  const Workload& w = find_workload("gpt2-124m");
  expect_bounds(w.config, {DType::i32, {256}}, 4);
}

}  // namespace
}  // namespace lathe
