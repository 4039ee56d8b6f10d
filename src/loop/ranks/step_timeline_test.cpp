#include "loop/ranks/step_timeline.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lathe {
namespace {

constexpr int64_t kMs = 1'000'000;
enum Labels { kOther, kFc, kSum, kVote, kWait, kData, kFill, kFirstStep };

// Steps of 10 ms: computes until `ready`, all_reduce from there on, which moves bytes for 2 ms once all are here at 6
// ms; then 1 ms of computing; then a second, short collective.
TraceData trace_of(int64_t ready, int steps, bool counts_steps) {
  TraceData d;
  d.lanes = {{"main thread"}, {"communication lane"}, {"loader"}, {"worker"}};
  d.labels = {{"other work", "host"},
              {"matmul", kKernelSpan, 1, 1, "matmul fc1"},
              {"cpu_all_reduce", kCommunicationSpan, 1, 1, "all_reduce fc1"},
              {"cpu_all_reduce", kCommunicationSpan, 1, 1, "all_reduce vote"},
              {"wait for another lane", kWaitSpan},
              {"wait for data", "data"},
              {"fill batch", "data"}};
  for (int64_t s = 0; s < steps; ++s) {
    const int64_t zero = 1'000 * kMs + 10 * s * kMs;
    const auto add = [&](int32_t lane, int32_t label, int64_t begin, int64_t end, bool part = false) {
      d.spans.push_back({lane, label, zero + begin * kMs, zero + end * kMs, part});
    };
    add(0, kData, 0, 1);
    add(0, kFc, 1, ready);
    add(3, kFc, 1, ready, true);
    add(2, kFill, 0, 10);
    add(1, kSum, ready, 8);
    add(0, kWait, ready, 8);
    add(0, kFc, 8, 9);
    add(1, kVote, 9, 10);
    if (!counts_steps) continue;
    d.labels.push_back({"step " + std::to_string(s + 4), kStepSpan});
    add(0, static_cast<int32_t>(kFirstStep + s), 0, 10);
  }
  return d;
}

double sum_of(const RankTimeline& r, StepPart p) { return r.sums[static_cast<size_t>(p)]; }

TEST(StepTimeline, SaysWhoWaitedForWhom) {
  const TraceData a = trace_of(3, 3, true), b = trace_of(6, 3, false), c = trace_of(5, 3, false);
  const std::vector<NamedTrace> traces{{"rank 0", &a}, {"rank 1 on h", &b}, {"rank 2", &c}};
  const auto t = find_timeline(traces);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->steps, 3);
  EXPECT_EQ(t->collectives, 6);
  EXPECT_NEAR(t->seconds, 0.010, 1e-9);
  EXPECT_GE(t->step, 4);
  EXPECT_LE(t->step, 6);
  ASSERT_EQ(t->ranks.size(), 3u);
  const RankTimeline& last = t->ranks[1];
  EXPECT_EQ(last.name, "rank 1 on h");
  EXPECT_NEAR(last.late, 0.002, 1e-9) << "the others wait 3 and 1 ms";
  EXPECT_EQ(t->ranks[2].late, 0);
  EXPECT_EQ(last.last, 3);
  const RankTimeline& first = t->ranks[0];
  EXPECT_NEAR(sum_of(first, StepPart::compute), 0.003, 1e-9);
  EXPECT_NEAR(sum_of(first, StepPart::exposed), 0.005, 1e-9);
  EXPECT_NEAR(sum_of(first, StepPart::data), 0.001, 1e-9) << "the loader's own work is not waiting";
  EXPECT_NEAR(sum_of(first, StepPart::waiting), 0.003, 1e-9);
  EXPECT_NEAR(sum_of(first, StepPart::transfer), 0.003, 1e-9);
  EXPECT_EQ(sum_of(last, StepPart::waiting), 0);
  // The pieces are those of one step, and the same times.
  for (const RankTimeline& r : t->ranks)
    for (size_t part = 0; part < kStepParts; ++part) {
      double seconds = 0;
      for (const RankTimeline::Piece& p : r.pieces) {
        EXPECT_GE(p.begin, 0);
        EXPECT_LE(p.end, t->seconds + 1e-9);
        if (p.part == static_cast<StepPart>(part)) seconds += p.end - p.begin;
      }
      EXPECT_NEAR(seconds, r.sums[part], 1e-9) << r.name << " " << to_string(static_cast<StepPart>(part));
    }
}

// The first rank writes a checkpoint until 5 ms after a step.
TEST(StepTimeline, PausesBetweenStepsAreNotLate) {
  TraceData a = trace_of(6, 2, true);
  std::erase_if(a.spans, [](const TraceSpan& s) { return s.label == kData; });
  for (TraceSpan& s : a.spans)
    if (s.label == kFc && s.end - s.begin > kMs) s.begin += 4 * kMs;
  const TraceData b = trace_of(3, 2, false);
  const std::vector<NamedTrace> traces{{"rank 0", &a}, {"rank 1", &b}};
  const auto t = find_timeline(traces);
  ASSERT_TRUE(t);
  EXPECT_NEAR(t->ranks[0].late, 0.001, 1e-9) << "from 5 to 6 ms";
  EXPECT_NEAR(sum_of(t->ranks[1], StepPart::waiting), 0.003, 1e-9);
}

// Ranks that are threads are traced from one moment on, wherever they are.
TEST(StepTimeline, TracesMayBeginAtDifferentCollectives) {
  const TraceData a = trace_of(3, 4, true);
  for (const size_t missing : {1, 2}) {
    TraceData b = trace_of(6, 4, false);
    size_t gone = 0;
    std::erase_if(b.spans, [&](const TraceSpan& s) { return s.lane == 1 && gone++ < missing; });
    const std::vector<NamedTrace> traces{{"rank 0", &a}, {"rank 1", &b}}, turned{{"rank 1", &b}, {"rank 0", &a}};
    const auto t = find_timeline(traces);
    ASSERT_TRUE(t);
    EXPECT_EQ(t->collectives, 8 - static_cast<int64_t>(missing));
    EXPECT_NEAR(t->ranks[1].late, 0.003 * 3 / 4, 1e-9) << "of three of four steps";
    EXPECT_FALSE(find_timeline(turned)) << "the first rank has no steps";
  }
}

TEST(StepTimeline, DifferentCollectivesAreNotCompared) {
  const TraceData a = trace_of(3, 2, true);
  TraceData b = trace_of(6, 2, false);
  b.labels[kSum].node = "all_reduce of something else";
  const std::vector<NamedTrace> traces{{"rank 0", &a}, {"rank 1", &b}}, one{{"rank 0", &a}};
  const auto t = find_timeline(traces);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->collectives, 0);
  EXPECT_EQ(t->ranks[1].late, 0);
  EXPECT_GT(sum_of(t->ranks[1], StepPart::compute), 0);
  EXPECT_FALSE(find_timeline(one));
}

TEST(StepTimeline, OfManyRanksSomeAreDrawn) {
  const TraceData a = trace_of(3, 2, true), b = trace_of(6, 2, false);
  std::vector<NamedTrace> traces{{"rank 0", &a}};
  for (int r = 1; r < 100; ++r) traces.push_back({"rank", &b});
  const auto t = find_timeline(traces);
  ASSERT_TRUE(t);
  EXPECT_EQ(t->ranks.size(), 100u);
  const auto drawn = std::ranges::count_if(t->ranks, [](const RankTimeline& r) { return !r.pieces.empty(); });
  EXPECT_GE(drawn, 8);
  EXPECT_LT(drawn, 100);
}

TEST(StepTimeline, KeepsAsJson) {
  const TraceData a = trace_of(3, 3, true), b = trace_of(6, 3, false);
  const std::vector<NamedTrace> traces{{"rank 0", &a}, {"rank 1 on \xff", &b}};
  auto t = find_timeline(traces);
  ASSERT_TRUE(t);
  t->uncertainty = 1e-5;
  const std::string json = to_json(*t);
  const auto back = parse_timeline(json);
  ASSERT_TRUE(back);
  EXPECT_EQ(to_json(*back), json);
  EXPECT_EQ(back->ranks[1].late, t->ranks[1].late);
  EXPECT_EQ(back->ranks[0].pieces.size(), t->ranks[0].pieces.size());
  EXPECT_EQ(back->uncertainty, 1e-5);
  for (const std::string& other : {std::string(), std::string("{}"), std::string("[1]"),
                                   json.substr(0, json.size() / 2), std::string(R"({"step":"x"})")})
    EXPECT_FALSE(parse_timeline(other)) << other;
}

}  // namespace
}  // namespace lathe
