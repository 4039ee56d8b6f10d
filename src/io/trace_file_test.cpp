#include "io/trace_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/thread_rank.h"

namespace lathe::io {
namespace {

nlohmann::json json_of(const Trace& t, const std::string& process, const TraceFacts& facts = {}) {
  const TraceProcess one{process, t.data()};
  return nlohmann::json::parse(trace_json({&one, 1}, facts));
}

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
  const auto j = json_of(t, "a \\ b", {{"device", "cpu\x01"}});
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
  const auto j = json_of(t, "p");
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
  EXPECT_EQ(t.data().lanes.size(), 4u);
  EXPECT_EQ(t.data().spans.size(), 100u);
  EXPECT_EQ(t.data().left_out, 100);
  const auto j = json_of(t, "p");
  EXPECT_EQ(j["otherData"]["spans left out"], "100");
  EXPECT_EQ(j["traceEvents"].size(), 2u + 2 * 4 + 100);
}

// Ranks that are threads have a process each; what no rank owns is the first one's.
TEST(TraceFile, RanksAreProcesses) {
  Trace t(10);
  const int32_t shared = t.lane("main thread");
  std::vector<int32_t> own;
  for (const int rank : {1, 0}) {
    const int before = std::exchange(thread_rank(), rank);
    own.push_back(t.lane("communication lane"));
    own.push_back(t.lane("communication lane"));
    thread_rank() = before;
  }
  const int32_t kernel = t.label({"sum", kCommunicationSpan, 0, 8, "all_reduce fc1"});
  t.start();
  t.add(shared, kernel, 1'000, 2'000);
  t.add(own[0], kernel, 3'000, 5'000);
  t.add(own[3], kernel, 2'000, 4'000);
  t.stop();
  const std::vector<TraceData> ranks = split_ranks(t.data());
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[0].spans.size(), 2u);
  EXPECT_EQ(ranks[1].spans.size(), 1u);
  const std::vector<TraceProcess> processes{{"rank 0", ranks[0]}, {"rank 1", ranks[1]}};
  const auto j = nlohmann::json::parse(trace_json(processes, {}));
  std::vector<std::string> rows, spans;
  for (const auto& e : j["traceEvents"]) {
    const std::string pid = std::to_string(e["pid"].get<int>()) + " ";
    if (e["name"] == "thread_name") rows.push_back(pid + e["args"]["name"].get<std::string>());
    if (e["ph"] == "X") spans.push_back(pid + std::to_string(e["ts"].get<int>()) + " " + e["cat"].get<std::string>());
  }
  EXPECT_EQ(rows, (std::vector<std::string>{"0 main thread", "0 communication lane", "0 communication lane 2",
                                            "1 communication lane", "1 communication lane 2"}));
  EXPECT_EQ(spans, (std::vector<std::string>{"0 0 communication", "0 1 communication", "1 2 communication"}));
}

TEST(TraceFile, GoesToAnotherRankAsText) {
  Trace t(2);
  const int32_t lane = t.lane("a \"row\"\nof \xff"), kernel = t.label({"matmul", "kernel", 2e6, 0.1, "fc1", "compute"});
  t.start();
  for (int64_t i = 0; i < 3; ++i) t.add(lane, kernel, -5 + i, int64_t{1} << 62, i == 1);
  t.stop();
  const TraceData there = parse_trace_text(trace_text(t.data()));
  ASSERT_EQ(there.lanes.size(), 1u);
  EXPECT_TRUE(there.lanes[0].name.starts_with("a \"row\"\nof ")) << there.lanes[0].name;
  ASSERT_EQ(there.labels.size(), 2u);
  EXPECT_EQ(there.labels[1].node, "fc1");
  EXPECT_EQ(there.labels[1].lane, "compute");
  EXPECT_EQ(there.labels[1].bytes, 0.1);
  EXPECT_EQ(there.left_out, 1);
  ASSERT_EQ(there.spans.size(), 2u);
  EXPECT_EQ(there.spans[0].begin, -5);
  EXPECT_EQ(there.spans[1].end, int64_t{1} << 62);
  EXPECT_FALSE(there.spans[0].part);
  EXPECT_TRUE(there.spans[1].part);
  const std::string text = trace_text(t.data());
  EXPECT_THROW(parse_trace_text(std::string_view(text).substr(0, text.size() - 4)), Error);
  EXPECT_THROW(parse_trace_text(text + "7 0 1 2 0\n"), Error) << "no such lane";
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
