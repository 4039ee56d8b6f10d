// lathe train --profile: the trace is JSON that viewers take, with one lane per thread and queue.
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "process.h"

namespace lathe::test {
namespace {

struct Timeline {
  std::map<std::string, std::vector<nlohmann::json>> lanes;  // complete events by the name of their lane
  nlohmann::json other;
};

Timeline profile(const std::vector<std::string>& more, int* lanes_named = nullptr) {
  const TempDir dir;
  std::vector<std::string> args{"train",         "mlp",
                                "--quiet",       "--out",
                                dir.path("run"), "--profile",
                                "--set",         "data.source=synthetic",
                                "--set",         "train.steps=12",
                                "--set",         "model.hidden=[64]",
                                "--set",         "train.batch_size=64",
                                "--set",         "data.test_samples=64"};
  args.insert(args.end(), more.begin(), more.end());
  const Outcome o = run_lathe(args);
  EXPECT_EQ(o.code, 0) << o.err;
  EXPECT_NE(o.out.find("trace.json"), std::string::npos) << o.out;
  const auto j = nlohmann::json::parse(read_file(dir.path("run/trace.json")));
  std::map<int, std::string> names;
  Timeline t;
  t.other = j["otherData"];
  for (const auto& e : j["traceEvents"])
    if (e["ph"] == "M" && e["name"] == "thread_name") names[e["tid"]] = e["args"]["name"];
  if (lanes_named) *lanes_named = static_cast<int>(names.size());
  double last = 0;
  for (const auto& e : j["traceEvents"]) {
    if (e["ph"] != "X") continue;
    EXPECT_TRUE(names.contains(e["tid"])) << e;
    EXPECT_GE(e["ts"].get<double>(), last) << "in the order of time";
    EXPECT_GE(e["dur"].get<double>(), 0) << e;
    last = e["ts"];
    t.lanes[names[e["tid"]]].push_back(e);
  }
  return t;
}

double end_of(const nlohmann::json& e) { return e["ts"].get<double>() + e["dur"].get<double>(); }

// In one lane spans lie in each other or apart: a viewer cannot show others.
void expect_nested(const Timeline& t) {
  constexpr double kRounding = 0.002;  // of times in the file
  for (const auto& [name, events] : t.lanes) {
    std::vector<double> open;
    for (const auto& e : events) {
      while (!open.empty() && open.back() <= e["ts"].get<double>() + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(end_of(e), open.back() + kRounding) << name << ": " << e;
      }
      open.push_back(end_of(e));
    }
  }
}

TEST(Profile, CpuHasALanePerThread) {
  const Timeline t = profile({"--profile-steps", "4", "--set", "device.threads=2"});
  expect_nested(t);
  ASSERT_TRUE(t.lanes.contains("main thread"));
  ASSERT_TRUE(t.lanes.contains("loader"));
  int steps = 0, kernels = 0, fast = 0;
  for (const auto& e : t.lanes.at("main thread")) {
    steps += e["cat"] == "step";
    if (e["cat"] != "kernel") continue;
    ++kernels;
    EXPECT_NE(e["args"]["node"].get<std::string>(), "");
    fast += e["args"].contains("GFLOP/s") && e["args"]["GFLOP/s"].get<double>() > 0;
  }
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(kernels % steps, 0) << "every step has the same kernels";
  EXPECT_GE(kernels / steps, 5);
  EXPECT_GE(fast / steps, 4);
  for (const auto& e : t.lanes.at("loader")) EXPECT_EQ(e["name"], "fill batch");
  if (t.lanes.contains("worker")) {  // on a busy machine it may come too late for all of them
    for (const auto& e : t.lanes.at("worker")) {
      EXPECT_NE(e["name"], "");
      EXPECT_FALSE(e.contains("args") && e["args"].contains("MFLOP")) << "the main thread's span has them: " << e;
    }
  }
  EXPECT_EQ(t.other["steps"], "4");
  EXPECT_EQ(t.other["spans left out"], "0");
}

TEST(Profile, EveryLoaderThreadHasALane) {
  const Timeline t = profile({"--set", "data.threads=2", "--set", "data.augment.rotate=20", "--profile-steps", "8"});
  expect_nested(t);
  size_t batches = 0;
  for (const auto& [name, events] : t.lanes)
    if (name.starts_with("loader")) batches += events.size();
  EXPECT_GT(batches, 0u);
}

TEST(Profile, ShortRunsGiveWhatThereIs) {
  const Timeline t = profile({"--set", "train.steps=5"});
  EXPECT_EQ(t.other["steps"], "2");
  expect_nested(t);
}

TEST(Profile, QueuesOfADeviceHaveLanes) {
  if (find_backend("opencl").devices().empty()) GTEST_SKIP() << find_backend("opencl").unavailable_reason();
  for (const char* steps : {"train.steps=5", "train.steps=12"}) {
    const Timeline t = profile({"--device", "opencl", "--set", steps, "--profile-steps", "4"});
    ASSERT_TRUE(t.lanes.contains("compute queue")) << steps;
    ASSERT_TRUE(t.lanes.contains("transfer queue")) << steps;
    int kernels = 0;
    for (const auto& e : t.lanes.at("compute queue")) kernels += e["cat"] == "kernel";
    EXPECT_GE(kernels, 2 * 5);
    for (const auto& e : t.lanes.at("transfer queue")) EXPECT_EQ(e["name"], "copy_in");
    // The clocks of host and device agree: the queue works while the host trains.
    const auto& host = t.lanes.at("main thread");
    const auto& queue = t.lanes.at("compute queue");
    EXPECT_GE(end_of(queue.back()), host.front()["ts"].get<double>());
    EXPECT_LE(queue.front()["ts"].get<double>(), end_of(host.back()) + 1e6);
  }
}

}  // namespace
}  // namespace lathe::test
