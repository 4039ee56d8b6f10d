#include "run/lane_runner.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/trace.h"
#include "plan/plan.h"
#include "plan/shadow.h"
#include "plan/test_graphs.h"
#include "run/executor.h"
#include "run/lanes_run.h"
#include "run/test_acts.h"

namespace lathe {
namespace {

using testing::acts;
using testing::bytes_after_steps;
using testing::random_graph;
using testing::table_with_acts;
using testing::with_lanes;

const std::map<std::string, Lane> kSome = {
    {"tanh", Lane::communication}, {"matmul", Lane::communication}, {"transpose", Lane::transfer}};

// The same bits as on one lane, in the same bytes, step after step.
void check_same_bits(const Backend& backend, uint32_t seed, int nodes) {
  SCOPED_TRACE(fmt::format("{} seed {}", backend.name(), seed));
  const Graph g = random_graph(seed, nodes);
  const ExecutorOptions options{.slots = 1, .snapshot = false};
  std::vector<std::byte> expected;
  {
    auto device = backend.open({});
    ProgramSet set = plan({g}, device->target(), backend.kernels());
    Executor e(std::move(set), std::move(device), options);
    expected = bytes_after_steps(e, seed, 2);
  }
  auto device = backend.open({});
  ProgramSet set = plan({g}, device->target(), with_lanes(backend.kernels(), kSome));
  ASSERT_TRUE(set.programs[0].has_lanes());
  Executor e(std::move(set), std::move(device), options);
  EXPECT_TRUE(bytes_after_steps(e, seed, 2) == expected);
  const int64_t made = e.device().counters().allocations;
  EXPECT_TRUE(bytes_after_steps(e, seed, 2) == expected);
  EXPECT_EQ(e.device().counters().allocations, made);
  EXPECT_EQ(e.profile(0, 0).size(), e.set().programs[0].launches.size());
}

TEST(LaneRunner, SameBitsOnHostDevices) {
  for (uint32_t seed = 0; seed < 5; ++seed)
    for (const char* name : {"cpu", "ref"}) check_same_bits(find_backend(name), seed, 12 + 8 * static_cast<int>(seed));
}

TEST(LaneRunner, SameBitsOnOpenCl) {
  const Backend& backend = find_backend("opencl");
  if (backend.devices().empty()) GTEST_SKIP() << backend.unavailable_reason();
  for (uint32_t seed = 0; seed < 2; ++seed) check_same_bits(backend, seed, 12);
}

// r = tanh(x) + exp(x): both may run at once.
std::unique_ptr<Executor> executor_of_acts() {
  Builder b("g");
  const Value x = b.input({DType::f32, {64}}, InputKind::batch, "x");
  b.output(tanh(x) + exp(x), OutputKind::result, "r");
  auto device = find_backend("cpu").open({.threads = 2});
  ProgramSet set = plan({b.finish()}, device->target(), table_with_acts(Lane::communication));
  return std::make_unique<Executor>(std::move(set), std::move(device), ExecutorOptions{.slots = 1, .snapshot = false});
}

void run_step(Executor& e) {
  e.stage(0, 0);
  e.run(0, 0);
}

class LaneActs : public ::testing::Test {
 protected:
  void TearDown() override { acts = {}; }
};

// Each of the two waits, within its run, until the other has begun.
TEST_F(LaneActs, LanesOfTheHostRunAtTheSameTime) {
  struct Times {
    std::atomic<int64_t> begin{0}, end{0};
  } aside, compute;
  const auto act = [](Times& own, const Times& other) {
    return [&] {
      own.begin = Trace::now();
      for (int i = 0; other.begin.load() == 0 && i < 30'000; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      own.end = Trace::now();
    };
  };
  acts = {act(aside, compute), act(compute, aside)};
  const auto e = executor_of_acts();
  for (int step = 0; step < 3; ++step) {
    aside.begin = compute.begin = 0;
    run_step(*e);
    EXPECT_LT(aside.begin, compute.end);
    EXPECT_LT(compute.begin, aside.end);
    EXPECT_LT(std::max(aside.end, compute.end) - std::min(aside.begin, compute.begin), int64_t{29} * 1'000'000'000);
  }
}

// What another lane does is hidden behind work, or waited for.
TEST_F(LaneActs, WaitsOfTheComputeLaneAreCounted) {
  constexpr double kLong = 0.1;
  const auto rest = [&] { std::this_thread::sleep_for(std::chrono::duration<double>(kLong)); };
  Trace trace(1000);
  const auto e = executor_of_acts();
  acts.aside = rest;
  trace.start();
  run_step(*e);
  trace.stop();
  const double waited = e->lane_wait_seconds();
  EXPECT_GT(waited, 0.5 * kLong);
  double traced = 0;
  const TraceData found = trace.data();
  for (const TraceSpan& s : found.spans) {
    if (found.labels[static_cast<size_t>(s.label)].kind != kWaitSpan) continue;
    EXPECT_EQ(found.lanes[static_cast<size_t>(s.lane)].name, "main thread");
    traced += 1e-9 * static_cast<double>(s.end - s.begin);
  }
  EXPECT_NEAR(traced, waited, 1e-6);
  acts = {nullptr, rest};
  run_step(*e);
  EXPECT_LT(e->lane_wait_seconds() - waited, 0.5 * kLong) << "the other lane was done before";
}

TEST_F(LaneActs, ErrorsOfALaneEndTheStep) {
  const auto fail = [] { throw DeviceError("no link"); };
  for (const bool in_aside : {true, false}) {
    acts = {};
    const auto e = executor_of_acts();
    run_step(*e);
    (in_aside ? acts.aside : acts.compute) = fail;
    EXPECT_THROW(run_step(*e), DeviceError) << in_aside;
    EXPECT_THROW(run_step(*e), DeviceError) << "the state is lost";
  }
}

TEST_F(LaneActs, TheTraceHasARowForEachLane) {
  Trace trace(1000);
  const auto e = executor_of_acts();
  trace.start();
  run_step(*e);
  trace.stop();
  std::map<std::string, std::vector<std::string>> rows;
  const TraceData found = trace.data();
  for (const TraceSpan& s : found.spans) {
    const TraceLabel& l = found.labels[static_cast<size_t>(s.label)];
    if (l.kind != kWaitSpan) rows[found.lanes[static_cast<size_t>(s.lane)].name].push_back(l.node + " " + l.lane);
  }
  EXPECT_EQ(rows["communication lane"], (std::vector<std::string>{"tanh communication"}));
  EXPECT_EQ(rows["main thread"], (std::vector<std::string>{"exp ", "add "}));
}

}  // namespace
}  // namespace lathe
