// The step as a pipeline, through the trainer: the host gives steps to the device without waiting for them, the input
// of the next step moves while a step computes, and a bad step is still named by its own number.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>

#include "backend/opencl/opencl_device.h"
#include "loop/trainer.h"
#include "process.h"

namespace lathe {
namespace {

using test::TempDir;

constexpr int64_t kSteps = 48;

class OpenClPipeline : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_backend("opencl").devices().empty()) GTEST_SKIP() << find_backend("opencl").unavailable_reason();
  }
  // Few samples for many weights: the loader is ahead of the device, whatever else the machine does. A step takes tens
  // of milliseconds, so that a host thread which waits for a core of a busy machine is still in time.
  static Recipe recipe(const std::string& name, const Sets& more) {
    Sets all{"device=opencl",        "data.source=synthetic",     "data.train_samples=128",
             "data.test_samples=16", "train.batch_size=16",       "train.eval_every=0",
             "train.log_every=1000", "checkpoint.every_epochs=0", "train.steps=" + std::to_string(kSteps)};
    all.push_back(name == "mlp" ? "model.hidden=[2048,2048]" : "model.channels=[32,64]");
    all.insert(all.end(), more.begin(), more.end());
    return load_recipe(name, all);
  }
  const TempDir dir_;
};

// The device is slower than the host: no step waits in the driver, none allocates, and the host rests at most once in
// two steps.
TEST_F(OpenClPipeline, TheHostIsAhead) {
  for (const std::string name : {"mlp", "fashion_mnist"}) {
    TrainOptions o;
    o.out = dir_.path(name);
    DeviceCounters before;
    int64_t ahead = 0, steps = 0;
    o.on_step = [&](int64_t step, Executor& e) {
      const DeviceCounters now = e.device().counters();
      if (step > 1 && step < kSteps) {  // the first is waited for, and so is the last
        EXPECT_EQ(now.blocking, before.blocking) << name << " step " << step;
        EXPECT_EQ(now.allocations, before.allocations) << name << " step " << step;
        EXPECT_GT(now.launches, before.launches) << name << " step " << step;
        ahead += !e.is_done(step - 1);
        ++steps;
      }
      before = now;
    };
    // mlp: the last batch of an epoch is half a one, whose Program runs for the first time long after the first step.
    const TrainResult r = train(recipe(name, name == "mlp" ? Sets{"data.train_samples=120"} : Sets{}), o);
    EXPECT_EQ(r.in_steps.blocking, 0) << name;
    EXPECT_EQ(r.in_steps.allocations, 0) << name;
    EXPECT_GT(r.in_steps.pauses, 0) << name << ": the device was no bottleneck";
    EXPECT_LE(r.in_steps.pauses, kSteps / 2) << name;
    EXPECT_EQ(steps, kSteps - 2);
    EXPECT_GE(ahead, steps - 2) << name << ": when a step was given, the device was still busy with it";
    RecordProperty(name + "_ahead", std::to_string(ahead));
  }
}

// An evaluation of 33 batches, the last one smaller, comes after every fourth step. From the step before it to the one
// after it nothing waits in the driver and nothing is allocated; the host rests at most once for each batch.
TEST_F(OpenClPipeline, EvaluationIsAheadAsWell) {
  constexpr int64_t kBatches = 33;
  for (const std::string name : {"mlp", "fashion_mnist"}) {
    TrainOptions o;
    o.out = dir_.path(name);
    DeviceCounters before;
    int64_t evaluations = 0;
    o.on_step = [&](int64_t step, Executor& e) {
      const DeviceCounters now = e.device().counters();
      if (step % 4 == 1 && step > 1) {  // since the step before, which was waited for, an evaluation ran
        EXPECT_EQ(now.blocking, before.blocking) << name << " step " << step;
        EXPECT_EQ(now.allocations, before.allocations) << name << " step " << step;
        EXPECT_GT(now.launches, before.launches + kBatches) << name << " step " << step;
        EXPECT_LE(now.pauses, before.pauses + kBatches + 8) << name << " step " << step;
        ++evaluations;
      }
      before = now;
    };
    train(recipe(name, {"data.train_samples=64", "data.test_samples=520", "train.eval_batch=16", "train.eval_every=1",
                        "train.steps=14"}),
          o);
    EXPECT_EQ(evaluations, 3) << name;
  }
}

TEST_F(OpenClPipeline, InputsMoveWhileTheStepBeforeComputes) {
  setenv("LATHE_OPENCL_TRACE", "1", 1);
  for (const std::string name : {"mlp", "fashion_mnist"}) {
    TrainOptions o;
    o.out = dir_.path(name);
    std::vector<OpenClSpan> copies, kernels;
    o.on_step = [&](int64_t step, Executor& e) {
      if (step != kSteps) return;
      auto* device = dynamic_cast<OpenClDevice*>(&e.device());
      ASSERT_TRUE(device);
      for (const Lane lane : {Lane::compute, Lane::transfer}) device->stream(lane).synchronize();
      for (const OpenClSpan& s : device->spans())
        if (s.lane == Lane::transfer && s.what == "copy_in")
          copies.push_back(s);
        else if (s.lane == Lane::compute && s.what.rfind("copy", 0) != 0)
          kernels.push_back(s);
    };
    train(recipe(name, {}), o);
    ASSERT_FALSE(copies.empty());
    ASSERT_EQ(copies.size() % kSteps, 0u);
    ASSERT_EQ(kernels.size() % kSteps, 0u);
    const size_t inputs = copies.size() / kSteps, launches = kernels.size() / kSteps;
    // The loader starts with the run: step 0 may be over before batch 1 is there.
    for (size_t n = 2; n < kSteps; ++n)
      EXPECT_LT(copies[n * inputs].start, kernels[n * launches - 1].end) << name << ": the input of step " << n;
  }
  unsetenv("LATHE_OPENCL_TRACE");
}

// The host is notified of step 5 when the next ones are under way: it still names step 5, and keeps nothing that came
// after.
TEST_F(OpenClPipeline, ABadStepIsNamed) {
  struct Row {
    const char *policy, *step, *count;
  };
  for (const Row& row :
       {Row{"stop", "step 5: ", "1 refused in a row"}, Row{"skip", "step 7: ", "3 refused in a row"}}) {
    TrainOptions o;
    o.out = dir_.path(row.policy);
    o.on_step = [](int64_t step, Executor& e) {
      if (step != 4) return;
      for (const Port& p : e.set().state) {
        if (p.name.find("bias") == std::string::npos || p.type.dtype != DType::f32) continue;
        std::vector<float> bad(static_cast<size_t>(p.type.numel()), std::numeric_limits<float>::quiet_NaN());
        return e.write_state(p.name, std::as_bytes(std::span(bad)));
      }
      FAIL() << "no bias";
    };
    try {
      Sets sets{std::string("train.on_nan=") + row.policy, "checkpoint.every_steps=3"};
      if (std::string(row.policy) == "skip") sets.push_back("train.nan_patience=3");
      train(recipe("mlp", sets), o);
      ADD_FAILURE() << "expected the run to stop";
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::bad_data);
      EXPECT_NE(std::string(e.what()).find(row.step), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find(row.count), std::string::npos) << e.what();
    }
    const std::string newest = test::newest_checkpoint(o.out);
    EXPECT_EQ(newest.back(), std::string(row.policy) == "stop" ? '3' : '6') << newest;
  }
}

}  // namespace
}  // namespace lathe
