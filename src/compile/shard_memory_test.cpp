// What sharding saves, read off the certificate of a rank.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/backend.h"
#include "nn/layers.h"
#include "nn/step/train_set.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "passes/partition/shard_state.h"
#include "passes/techniques/accumulate.h"
#include "passes/techniques/gate.h"
#include "plan/plan.h"

namespace lathe::shard_memory_test {
namespace {

constexpr int64_t kWide = 512, kLayers = 6;

// Layers of one size, so that a gathered one, or a gradient before its sum, is a sixth of all.
StepSet mlp() {
  Builder b("train");
  Net net(b, Mode::train);
  Value h = b.input({DType::f32, {8, kWide}}, InputKind::batch, "x");
  for (int64_t i = 0; i < kLayers; ++i) h = relu(linear(net, fmt::format("fc{}", i), h, kWide));
  return train_set(net, reduce_mean(square(h), {0, 1}), {.name = "adam"});
}

struct Measured {
  double params = 0;                            // parameters
  double state = 0, gradients = 0, others = 0;  // bytes per parameter: state; at most: gradients, gathered weights
};

Measured measure(int64_t level, int ranks, const char* update, int64_t accumulate = 1) {
  PassContext context{find_backend("cpu").target({}), {}};
  context.mesh = {ranks, 0};
  context.options.set(ShardOptions{level}).set(GateOptions{.update = update}).set(AccumulateOptions{accumulate});
  StepSet set = run_pipeline(mlp(), context);
  Measured m;
  for (const StateSpec& s : set.state)
    if (s.kind == InputKind::param) m.params += static_cast<double>(s.whole_type().numel());
  const ProgramSet programs = plan(std::move(set.graphs), context.target, find_backend("cpu").kernels(),
                                   {.allow_fallback = false, .budget = 0, .in_flight = 0});
  for (const Port& p : programs.state)
    (p.kind == InputKind::gradient ? m.gradients : m.state) += static_cast<double>(p.type.bytes()) / m.params;
  double gradients = 0, others = 0;
  for (const Program& p : programs.programs)
    for (const MemoryReport::Moment& at : p.memory.timeline) {
      gradients = std::max(gradients, static_cast<double>(at.gradients));
      others = std::max(others, static_cast<double>(at.activations));
    }
  m.gradients += gradients / m.params;
  m.others = others / m.params;
  return m;
}

// What comes beside what a level promises: a layer's gradient before it is summed; biases and counts, which are whole.
constexpr double kLayer = 4.0 / kLayers, kSmall = 0.03;

TEST(ShardMemory, LevelsKeepTheirPromise) {
  for (const int n : {2, 4})
    for (const char* update : {"after_all", "at_gradient"}) {
      SCOPED_TRACE(fmt::format("{} ranks, {}", n, update));
      Measured m[4];
      for (int64_t level = 0; level < 4; ++level) {
        m[level] = measure(level, n, update);
        RecordProperty(fmt::format("level_{}_of_{}_{}", level, n, update),
                       fmt::format("state {:.2f}, gradients {:.2f}, others {:.2f}", m[level].state, m[level].gradients,
                                   m[level].others));
      }
      EXPECT_LE(m[0].state + m[0].gradients, 16 + kLayer + kSmall);
      EXPECT_LE(m[1].state, 4 + 8.0 / n + kSmall);
      EXPECT_LE(m[1].state + m[1].gradients, 8 + 8.0 / n + kSmall);
      EXPECT_LE(m[2].state + m[2].gradients, 4 + 12.0 / n + kLayer + kSmall);
      EXPECT_LE(m[3].state, 12.0 / n + kSmall);
      EXPECT_LE(m[3].state + m[3].gradients, 16.0 / n + kLayer + kSmall);
      EXPECT_LE(m[3].others, m[0].others + 2 * kLayer + kSmall);  // gathered layers: one, and the next
    }
}

// With sums over micro-batches gradients live from step to step: whole at level 1, as parts at level 2.
TEST(ShardMemory, SumsOfGradientsToo) {
  for (const int n : {2, 4}) {
    SCOPED_TRACE(n);
    const Measured one = measure(1, n, "after_all", 4), two = measure(2, n, "after_all", 4);
    EXPECT_LE(one.state + one.gradients, 8 + 12.0 / n + kLayer + kSmall);
    EXPECT_LE(two.state + two.gradients, 4 + 12.0 / n + 2 * kLayer + kSmall);
    EXPECT_LT(two.gradients, one.gradients - 1);
  }
}

}  // namespace
}  // namespace lathe::shard_memory_test
