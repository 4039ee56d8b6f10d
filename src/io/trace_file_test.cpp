#include "io/trace_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

namespace lathe::io {
namespace {

TEST(TraceFile, ParsesBackWithLanesInTheOrderOfTime) {
  Trace t(10);
  EXPECT_EQ(Trace::of_process(), &t);
  const int32_t host = t.lane("host"), queue = t.lane("queue \"a\"\n"), second = t.lane("host");
  const int32_t kernel = t.label({"matmul", "kernel", 2e6, 4e6, "matmul fc1"}), step = t.label("step", "step");
  EXPECT_EQ(t.label("step", "step"), step);
  t.add(host, kernel, 0, 1);  // not on yet
  t.start();
  t.add(queue, kernel, 5'000, 6'000);
  t.add(host, kernel, 2'000, 3'500);
  t.add(host, step, 2'000, 9'000);
  t.stop();
  t.add(second, step, 1, 2);
  const auto j = nlohmann::json::parse(trace_json(t, "a \\ b", {{"device", "cpu\x01"}}));
  EXPECT_EQ(j["otherData"]["device"], "cpu\x01");
  std::vector<nlohmann::json> spans;
  std::vector<std::string> lanes;
  for (const auto& e : j["traceEvents"]) {
    if (e["ph"] == "X") spans.push_back(e);
    if (e["name"] == "thread_name") lanes.push_back(e["args"]["name"]);
    if (e["name"] == "process_name") {
      EXPECT_EQ(e["args"]["name"], "a \\ b");
    }
  }
  EXPECT_EQ(lanes, (std::vector<std::string>{"host", "queue \"a\"\n", "host 2"}));
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0]["name"], "step") << "the outer one first";
  EXPECT_EQ(spans[0]["ts"], 0.0);
  EXPECT_EQ(spans[0]["dur"], 7.0);
  EXPECT_EQ(spans[1]["name"], "matmul");
  EXPECT_EQ(spans[1]["tid"], spans[0]["tid"]);
  EXPECT_EQ(spans[2]["ts"], 3.0);
  EXPECT_NE(spans[2]["tid"], spans[0]["tid"]);
  EXPECT_EQ(spans[2]["args"]["node"], "matmul fc1");
  EXPECT_DOUBLE_EQ(spans[2]["args"]["GFLOP/s"].get<double>(), 2000);  // 2e6 in a microsecond
  EXPECT_DOUBLE_EQ(spans[2]["args"]["GB/s"].get<double>(), 4000);
}

TEST(TraceFile, PartsOfANodeCarryNoRates) {
  Trace t(10);
  const int32_t lane = t.lane("main"), worker = t.lane("worker"),
                kernel = t.label({"matmul", "kernel", 2e6, 4e6, "fc1"});
  t.start();
  t.add(lane, kernel, 0, 10'000);
  t.add(worker, kernel, 1'000, 1'010, true);
  t.stop();
  double flops = 0;
  int named = 0;
  const auto j = nlohmann::json::parse(trace_json(t, "p", {}));
  for (const auto& e : j["traceEvents"]) {
    if (e["ph"] != "X") continue;
    named += e["args"]["node"] == "fc1";
    flops += e["args"].value("MFLOP", 0.0);
    if (e["tid"] == worker + 1) {
      EXPECT_EQ(e["args"].size(), 1u) << e;
    }
  }
  EXPECT_EQ(named, 2);
  EXPECT_DOUBLE_EQ(flops, 2) << "once";
}

TEST(TraceFile, IsBoundedAndSaysWhatIsMissing) {
  Trace t(100);
  t.start();
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; ++k)
    threads.emplace_back([&] {
      for (int i = 0; i < 50; ++i) const TraceScope scope("thread", "work", "test");
    });
  for (std::thread& thread : threads) thread.join();
  t.stop();
  EXPECT_EQ(t.lanes().size(), 4u);
  EXPECT_EQ(t.spans().size(), 100u);
  EXPECT_EQ(t.left_out(), 100);
  const auto j = nlohmann::json::parse(trace_json(t, "p", {}));
  EXPECT_EQ(j["otherData"]["spans left out"], "100");
  EXPECT_EQ(j["traceEvents"].size(), 1u + 2 * 4 + 100);
}

TEST(TraceFile, NothingIsTracedByItself) {
  EXPECT_EQ(Trace::of_process(), nullptr);
  const TraceScope scope("thread", "work", "test");
  { const Trace first(1); }
  Trace second(1);
  second.start();
  EXPECT_EQ(second.thread_lane("a"), 0) << "a thread's lane is another one in the next trace";
}

}  // namespace
}  // namespace lathe::io
