// Runs that are left half-way: the state is that before the step, or the step is completed, or the state is spoiled and
// says so.
#include "run/leaving.h"

#include <gtest/gtest.h>

#include <cstring>

#include "ops/elementwise.h"
#include "plan/plan.h"
#include "run/executor.h"
#include "run/test_acts.h"

namespace lathe {
namespace {

using testing::acts;
using testing::table_with_acts;

constexpr int64_t kCount = 64;

// s += exp(x), then t += tanh(s): exp runs before any state is written, tanh after the first.
class LeavingRuns : public ::testing::TestWithParam<Lane> {
 protected:
  LeavingRuns() {
    Builder b("g");
    const TensorType type{DType::f32, {kCount}};
    const Value x = b.input(type, InputKind::batch, "x");
    const Value s = b.input(type, InputKind::param, "s"), t = b.input(type, InputKind::param, "t");
    const Value next = s + exp(x);
    b.update(s, next);
    b.update(t, t + tanh(next));
    auto device = find_backend("cpu").open({.threads = 2});
    ProgramSet set = plan({b.finish()}, device->target(), table_with_acts(GetParam()));
    executor_ =
        std::make_unique<Executor>(std::move(set), std::move(device), ExecutorOptions{.slots = 1, .snapshot = false});
    const std::vector<float> ones(kCount, 1);
    std::memcpy(executor_->staging(0, "x"), ones.data(), kCount * sizeof(float));
  }
  void TearDown() override { acts = {}; }

  int64_t step() {
    executor_->leaving().begin_step();
    executor_->stage(0, 0);
    return executor_->run(0, 0);
  }
  float state(const char* name) {
    std::vector<float> out(kCount);
    executor_->read_state(name, std::as_writable_bytes(std::span(out)));
    return out[0];
  }

  StopFlag flag_;
  std::unique_ptr<Executor> executor_;
};

TEST_P(LeavingRuns, GoOnWhileNobodyAsks) {
  executor_->leaving().watch(&flag_);
  EXPECT_EQ(step(), 0);
  EXPECT_EQ(step(), 1);
  EXPECT_EQ(state("s"), 2);
  EXPECT_EQ(state("t"), 3);
}

TEST_P(LeavingRuns, AreLeftBeforeStateChanges) {
  executor_->leaving().watch(&flag_);
  EXPECT_EQ(step(), 0);
  acts.compute = [&] { flag_.set(15); };
  EXPECT_EQ(step(), -1);
  EXPECT_FALSE(executor_->leaving().spoiled());
  EXPECT_EQ(state("s"), 1);
  EXPECT_EQ(state("t"), 1);
  // The numbers of the next run are those of one that was never left.
  flag_.clear();
  acts.compute = {};
  EXPECT_EQ(step(), 1);
  EXPECT_EQ(state("s"), 2);
  EXPECT_EQ(state("t"), 3);
}

TEST_P(LeavingRuns, AreCompletedOnceStateHasChanged) {
  executor_->leaving().watch(&flag_);
  acts.aside = [&] { flag_.set(15); };
  EXPECT_EQ(step(), 0);
  EXPECT_FALSE(executor_->leaving().spoiled());
  EXPECT_EQ(state("s"), 1);
  EXPECT_EQ(state("t"), 1);
}

TEST_P(LeavingRuns, AreSpoiledWhenTheRestTakesTooLong) {
  executor_->leaving().watch(&flag_, 0);
  acts.aside = [&] { flag_.set(15); };
  EXPECT_EQ(step(), -1);
  EXPECT_TRUE(executor_->leaving().spoiled());
  EXPECT_EQ(state("s"), 1);
  EXPECT_EQ(state("t"), 0);
}

// A second run of the same step has no way back to before the first.
TEST_P(LeavingRuns, OfOneStepAreLeftTogether) {
  executor_->leaving().watch(&flag_);
  EXPECT_EQ(step(), 0);
  acts.compute = [&] { flag_.set(15); };
  executor_->stage(0, 0);
  EXPECT_EQ(executor_->run(0, 0), 1);
  EXPECT_EQ(state("t"), 3);
}

INSTANTIATE_TEST_SUITE_P(Lanes, LeavingRuns, ::testing::Values(Lane::compute, Lane::communication),
                         [](const auto& lane) { return std::string(to_string(lane.param)); });

// Accumulated gradients are in no checkpoint: writing them is no change.
TEST(Leaving, AccumulatedGradientsAreNotKept) {
  for (const InputKind kind : {InputKind::gradient, InputKind::param}) {
    Builder b("g");
    const TensorType type{DType::f32, {kCount}};
    const Value s = b.input(type, kind, "s"), t = b.input(type, InputKind::param, "t");
    const Value next = s + s;
    b.update(s, next);
    b.update(t, t + tanh(next));
    auto device = find_backend("cpu").open({.threads = 1});
    ProgramSet set = plan({b.finish()}, device->target(), table_with_acts(Lane::compute));
    Executor e(std::move(set), std::move(device), {.slots = 1, .snapshot = false});
    StopFlag flag;
    e.leaving().watch(&flag);
    e.leaving().begin_step();
    acts.aside = [&] { flag.set(15); };
    e.stage(0, 0);
    EXPECT_EQ(e.run(0, 0), kind == InputKind::gradient ? -1 : 0);
    acts.aside = {};
  }
}

}  // namespace
}  // namespace lathe
