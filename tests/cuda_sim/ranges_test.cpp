// NVTX: the ranges that a profiler sees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda_backend.h"
#include "compile/compile.h"
#include "passes/precision.h"
#include "plan/plan.h"
#include "run/executor.h"
#include "session/state.h"
#include "sim.h"

namespace lathe {
namespace {

// A step of a recipe's tiny twin, run so many times: the ranges, and the Program that was run.
struct RangesOfRun {
  sim::Ranges ranges;
  Program program;
};
RangesOfRun ranges_of(const std::string& recipe, const std::string& precision, int steps) {
  setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
  const cuda::Api api = sim::simulator_api();
  const CudaBackend backend(&api);
  Recipe r = tiny_twin(load_recipe(recipe));
  r.passes.set(PrecisionOptions{precision});
  CompileOptions train_only;
  train_only.eval = false;
  StepSet step = build_steps(r, describe_data(r), train_only);
  step.graphs.resize(1);
  drop_unused_state(step);
  const Target target = backend.target({});
  sim::take_ranges();
  RangesOfRun out;
  {
    step = run_pipeline(std::move(step), pass_context(r, target));
    Executor e(plan(step.graphs, target, backend.kernels()), backend.open({}), {.slots = 1, .snapshot = false});
    out.program = e.set().programs[0];
    initialize_state(e, step.state, 1);
    for (const Port& p : out.program.inputs)
      if (!is_state(p.kind)) std::memset(e.staging(0, p.name), 0, static_cast<size_t>(p.type.bytes()));
    for (int i = 0; i < steps; ++i) {
      e.stage(0, 0);
      e.run(0, 0);
    }
    e.synchronize();
  }
  out.ranges = sim::take_ranges();
  return out;
}

TEST(CudaSimRanges, NameTheProgramAndItsNodes) {
  // Convolutions; attention in cuDNN; every kind of product and loop.
  const struct {
    const char *recipe, *precision;
    std::vector<std::string> ops;
  } cases[] = {{"fashion_mnist", "f32", {"conv2d_dx", "conv2d_dw"}},
               {"gpt_tiny", "bf16", {"attention_grad", "matmul"}}};
  for (const auto& c : cases) {
    const auto [ranges, program] = ranges_of(c.recipe, c.precision, 3);
    EXPECT_EQ(ranges.open, 0) << c.recipe;
    EXPECT_EQ(ranges.opened.count(program.name) ? ranges.opened.at(program.name) : 0, 3) << "one per step";
    std::map<std::string, int64_t> nodes;
    for (const Launch& l : program.launches)
      ++nodes["recording " + program.name + " > " + std::string(l.node.op->name()) +
              (l.node.origin.empty() ? "" : " " + l.node.origin.str())];
    for (const auto& [name, count] : nodes)
      EXPECT_GE(ranges.opened.count(name) ? ranges.opened.at(name) : 0, count) << name;
    for (const std::string& op : c.ops)
      EXPECT_TRUE(std::any_of(nodes.begin(), nodes.end(),
                              [&](const auto& n) { return n.first.find("> " + op + " ") != std::string::npos; }))
          << op << " with a layer's name in " << c.recipe;
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

TEST(CudaSimRanges, APopTooManyIsSeen) {
  const cuda::Api api = sim::simulator_api();
  sim::take_ranges();
  api.nvtxRangePushA("outer");
  api.nvtxRangePushA("inner");
  api.nvtxRangePop();
  const sim::Ranges half = sim::take_ranges();
  EXPECT_EQ(half.open, 1);
  EXPECT_EQ(half.opened.count("outer > inner"), 1u);
  api.nvtxRangePop();
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
  api.nvtxRangePop();
  EXPECT_EQ(sim::take_reports().size(), 1u);
}

}  // namespace
}  // namespace lathe
