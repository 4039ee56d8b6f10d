// Programs with several lanes: streams joined by the events that the plan placed, as one recording and launch by
// launch.
#include "plan/lanes.h"

#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "base/error.h"
#include "base/trace.h"
#include "plan/plan.h"
#include "plan/shadow.h"
#include "plan/test_graphs.h"
#include "run/executor.h"
#include "run/lanes_run.h"
#include "sim.h"

namespace lathe {
namespace {

using testing::bytes_after_steps;
using testing::random_graph;
using testing::with_lanes;

class CudaSimLanes : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
    sim::take_reports();
  }
  ProgramSet make(uint32_t seed, bool lanes) const {
    const KernelTable table =
        with_lanes(backend_.kernels(), lanes ? std::map<std::string, Lane>{{"tanh", Lane::communication},
                                                                           {"mul", Lane::communication},
                                                                           {"transpose", Lane::transfer}}
                                             : std::map<std::string, Lane>{});
    return plan({random_graph(seed, 25)}, backend_.target({}), table);
  }
  std::unique_ptr<Executor> executor(ProgramSet set) const {
    return std::make_unique<Executor>(std::move(set), backend_.open({}),
                                      ExecutorOptions{.slots = 1, .snapshot = false});
  }

  cuda::Api api_ = sim::simulator_api();
  CudaBackend backend_{&api_};
};

TEST_F(CudaSimLanes, SameBitsAsOneRecording) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    const auto expected = bytes_after_steps(*executor(make(seed, false)), seed, 3);
    const auto e = executor(make(seed, true));
    ASSERT_TRUE(e->set().programs[0].has_lanes());
    const int64_t made = e->device().counters().allocations, launched = sim::counters().graph_launches;
    EXPECT_TRUE(bytes_after_steps(*e, seed, 3) == expected) << seed;
    EXPECT_EQ(sim::counters().graph_launches - launched, 3);
    EXPECT_EQ(e->device().counters().allocations, made);
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

// Traced steps are not launched as a recording.
TEST_F(CudaSimLanes, SameBitsLaunchByLaunch) {
  const auto expected = bytes_after_steps(*executor(make(1, false)), 1, 3);
  Trace trace(10000);
  const auto e = executor(make(1, true));
  trace.start();
  EXPECT_TRUE(bytes_after_steps(*e, 1, 3) == expected);
  trace.stop();
  const std::vector<TraceLane> lanes = trace.data().lanes;
  EXPECT_NE(std::ranges::find(lanes, "communication lane", &TraceLane::name), lanes.end());
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

// Planted: a wait is missing. The simulator finds a race, or a stream that is not joined, whichever wait it is.
TEST_F(CudaSimLanes, EveryWaitIsNeeded) {
  const ProgramSet set = make(2, true);
  size_t planted = 0;
  const auto run_without = [&](auto&& remove) {
    ProgramSet less = set;
    remove(less.programs[0]);
    EXPECT_THROW(bytes_after_steps(*executor(std::move(less)), 2, 2), Error);
    EXPECT_FALSE(sim::take_reports().empty());
    ++planted;
  };
  for (size_t i = 0; i < set.programs[0].launches.size(); ++i)
    for (size_t k = 0; k < set.programs[0].launches[i].waits.size(); ++k)
      if (set.programs[0].launches[i].waits[k] >= 0)
        run_without(
            [&](Program& p) { p.launches[i].waits.erase(p.launches[i].waits.begin() + static_cast<int64_t>(k)); });
  if (!set.programs[0].end_waits.empty()) run_without([](Program& p) { p.end_waits.clear(); });
  EXPECT_GT(planted, 5u);
}

}  // namespace
}  // namespace lathe
