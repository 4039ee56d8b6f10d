// Whole networks under memory.budget: two steps of ResNet-50 and GPT-2 with half and with two thirds of their
// activation bytes have the losses, weights and moments of a run without a budget, bit for bit. Minutes of work:
// `./test --all`.
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "backend/backend.h"
#include "base/philox.h"
#include "base/stopwatch.h"
#include "bench/bench_step.h"
#include "io/hash.h"
#include "loop/step_inputs.h"
#include "plan/plan.h"
#include "session/state.h"

namespace lathe::test {
namespace {

constexpr int kNetSteps = 2;

struct StepOutcome {
  std::vector<double> losses;
  std::map<std::string, std::string> state;  // name, hash of the bits
};

// Other samples in every step.
void fill_step(Executor& e, const StepConfig& config, int64_t step, int64_t terms) {
  const CounterRng rng(1, 2, 3, static_cast<uint64_t>(step));
  for (const Port& p : e.set().programs[0].inputs) {
    if (is_state(p.kind)) continue;
    std::byte* at = e.staging(0, p.name);
    const auto below = [&](int64_t i, int64_t n) {
      return rng.below(static_cast<uint64_t>(i), static_cast<uint64_t>(n));
    };
    for (int64_t i = 0; i < p.type.numel(); ++i) {
      if (p.type.dtype == DType::i32) {
        const auto v = static_cast<int32_t>(below(i, config.model.classes));
        std::memcpy(at + i * static_cast<int64_t>(sizeof v), &v, sizeof v);
      } else if (p.type.dtype == DType::u8) {
        at[i] = static_cast<std::byte>(below(i, 256));
      } else if (p.name == "index") {
        std::memcpy(at + i * static_cast<int64_t>(sizeof i), &i, sizeof i);
      }
    }
  }
  stage_step_inputs(e, 0, 1, step, 1e-3, 1.0 / static_cast<double>(terms));
}

void expect_same_bits_with_budget(const StepConfig& config, const TensorType& sample, int64_t batch) {
  const Backend& backend = find_backend("cpu");
  const DeviceOptions options{0, 2};
  const Target target = backend.target(options);
  PipelineOptions unverified;
  unverified.verify = false;
  const StepSet step = run_pipeline(train_step(config, sample, batch), {target}, unverified);
  const Graph& graph = step.graphs[0];
  const int64_t terms = batch * (sample.dtype == DType::i32 ? sample.numel() : 1);

  const auto run = [&](int64_t budget) {
    Executor e(plan({graph}, target, backend.kernels(), {.allow_fallback = false, .budget = budget}),
               backend.open(options), {.slots = 1, .snapshot = false});
    initialize_state(e, step.state, 1);
    StepOutcome out;
    const Stopwatch start;
    for (int64_t i = 0; i < kNetSteps; ++i) {
      fill_step(e, config, i, terms);
      e.stage(0, 0);
      e.run(0, 0);
      out.losses.push_back(e.metric("loss"));
    }
    const double seconds = start.seconds();
    for (const StateSpec& s : step.state) {
      std::vector<std::byte> bytes(static_cast<size_t>(s.type.bytes()));
      e.read_state(s.name, bytes);
      out.state[s.name] = io::hash_bytes(bytes);
    }
    const Recomputed again = recomputed(e.set().programs[0]);
    std::printf("arena %.1f MB, activations %.1f MB, %.2f %% more FLOP in %d launches, losses %.6f %.6f, %.1f s\n",
                static_cast<double>(e.set().arena_bytes) / 1e6,
                static_cast<double>(e.set().programs[0].memory.of(MemoryClass::activations)) / 1e6, again.flops_percent,
                static_cast<int>(again.launches), out.losses[0], out.losses[1], seconds);
    EXPECT_EQ(again.launches > 0, budget > 0);
    if (budget > 0) {
      EXPECT_LE(e.set().arena_bytes, budget);
    }
    return out;
  };

  const ProgramSet free = plan({graph}, target, backend.kernels());
  const int64_t activations = free.programs[0].memory.of(MemoryClass::activations),
                rest = free.arena_bytes - activations;
  const StepOutcome plain = run(0);
  ASSERT_GT(plain.state.size(), 100u);
  EXPECT_NE(plain.losses[0], plain.losses[1]);
  for (const int64_t part : {activations * 2 / 3, activations / 2}) {
    const StepOutcome tight = run(rest + part);
    EXPECT_EQ(tight.losses, plain.losses);
    EXPECT_EQ(tight.state, plain.state);
  }
}

TEST(NetsRecompute, ResNet50HasTheSameBits) {
  const Workload& w = find_workload("resnet50");
  ASSERT_EQ(w.batch, 16);
  expect_same_bits_with_budget(w.config, w.sample, w.batch);
}

TEST(NetsRecompute, Gpt2HasTheSameBits) {
  expect_same_bits_with_budget(find_workload("gpt2-124m").config, {DType::i32, {256}}, 4);
}

}  // namespace
}  // namespace lathe::test
