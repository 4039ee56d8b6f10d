#include "comm/control/judge.h"

#include <gtest/gtest.h>

#include <thread>

#include "comm/control/stragglers.h"

namespace lathe::comm {
namespace {

Place place(int64_t step, int64_t number, bool inside, double seconds) {
  return {.step = step,
          .number = number,
          .in_step = number % 10,
          .per_step = 9,
          .inside = inside,
          .seconds = seconds,
          .label = "all_reduce of fc1"};
}

std::vector<RankView> ranks_at(const std::vector<Place>& places) {
  std::vector<RankView> out;
  for (const Place& p : places)
    out.push_back({.rank = static_cast<int>(out.size()), .host = "h", .silence = 0.05, .place = p});
  return out;
}

TEST(Judge, NobodyIsLateWithinTheTimeout) {
  EXPECT_FALSE(judge(ranks_at({place(1, 11, true, 1.8), place(1, 10, false, 5)}), 2));
  EXPECT_FALSE(judge(ranks_at({place(1, 11, false, 50), place(1, 10, false, 50)}), 2));
}

TEST(Judge, WhoHasNotEnteredIsLate) {
  for (const int late : {0, 1, 2, 3}) {
    std::vector<Place> places(4, place(17, 25, true, 2.5));
    places[static_cast<size_t>(late)] = place(17, 24, false, 2.6);
    const auto v = judge(ranks_at(places), 2);
    ASSERT_TRUE(v);
    EXPECT_EQ(v->fault, Fault::late);
    EXPECT_EQ(v->rank, late) << v->text;
    EXPECT_NE(v->text.find("in collective 5 of 9 (all_reduce of fc1)"), std::string::npos) << v->text;
  }
}

// Chains: some wait in a collective for a rank that waits in an earlier one for the last rank.
TEST(Judge, TheLastOfAChainIsLate) {
  const auto v = judge(
      ranks_at({place(17, 25, true, 9), place(17, 24, true, 9.5), place(17, 23, false, 10), place(17, 25, true, 9)}),
      2);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->rank, 2) << v->text;
  EXPECT_NE(v->text.find("rank 2 (host h): late by"), std::string::npos) << v->text;
}

TEST(Judge, SilenceComesFirst) {
  auto ranks = ranks_at({place(17, 25, true, 2.5), place(17, 25, true, 2.5), place(17, 24, false, 0)});
  ranks[2].silence = 2.6;
  const auto v = judge(ranks, 2);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->fault, Fault::silent);
  EXPECT_EQ(v->rank, 2);
  EXPECT_NE(v->text.find("no sign of life for 2.6 s"), std::string::npos) << v->text;
  // One that is done says nothing any more; but it can be waited for.
  ranks[2].is_done = true;
  const auto late = judge(ranks, 2);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->fault, Fault::late);
  EXPECT_EQ(late->rank, 2);
}

TEST(Judge, ACollectiveThatDoesNotEnd) {
  const auto stuck = [](double seconds) {
    return ranks_at({place(17, 25, true, seconds), place(17, 25, true, seconds), place(17, 25, false, 0.1)});
  };
  EXPECT_FALSE(judge(stuck(2.5), 2));  // messages name their ends at that time
  const auto v = judge(stuck(3.1), 2);
  ASSERT_TRUE(v);
  EXPECT_EQ(v->fault, Fault::stuck);
  EXPECT_NE(v->text.find("ranks 0 and 1"), std::string::npos) << v->text;
}

TEST(Judge, TextOfARankThatIsGone) {
  RankView r{.rank = 2, .host = "h3", .silence = 0.041, .place = place(17, 25, true, 0.3)};
  EXPECT_EQ(
      gone(r).text,
      "rank 2 (host h3): killed or gone; last seen at step 17 in collective 5 of 9 (all_reduce of fc1), 0.04 s ago");
  r.place = {};
  EXPECT_EQ(gone(r).text, "rank 2 (host h3): killed or gone; last seen before the first step, 0.04 s ago");
}

TEST(Position, ReadsWhatWasWritten) {
  Position p;
  EXPECT_EQ(to_string(p.read()), "before the first step");
  const int32_t a = p.add_label("all_reduce of fc1"), b = p.add_label("all_gather of fc2");
  EXPECT_EQ(p.add_label("all_reduce of fc1"), a);
  p.set_per_step(2);
  p.set_step(4);
  EXPECT_EQ(to_string(p.read()), "at step 4 before its first collective");
  {
    const Inside inside(&p, a);
    EXPECT_EQ(to_string(p.read()), "at step 4 in collective 1 of 2 (all_reduce of fc1)");
  }
  EXPECT_EQ(to_string(p.read()), "at step 4 after collective 1 of 2 (all_reduce of fc1)");
  { const Inside inside(&p, b); }
  p.set_step(5);
  { const Inside inside(&p, b); }
  EXPECT_EQ(to_string(p.read()), "at step 5 after collective 1 of 2 (all_gather of fc2)");
  EXPECT_EQ(p.read().number, 3);
  // One more than the step has: it came between steps.
  { const Inside inside(&p, b); }
  { const Inside inside(&p, a); }
  EXPECT_EQ(to_string(p.read()), "at step 5 after collective 3 (all_reduce of fc1)");
}

TEST(Position, MarksOfTwoThreads) {
  Position p;
  std::atomic<bool> ends{false};
  std::thread writer([&] {
    for (int64_t step = 1; step < 20000; ++step) {
      p.set_step(step);
      const Inside inside(&p, Position::kNoLabel);
    }
    ends = true;
  });
  while (!ends) {
    int64_t last_step = 0, last_ns = 0;
    const auto marks = p.marks();
    for (size_t k = marks.size(); k-- > 0;) {
      if (marks[k].step < 0) continue;
      EXPECT_EQ(marks[k].step % (int64_t{1} << k), 0);
      if (marks[k].step < last_step) continue;  // overtaken while it was read
      EXPECT_GE(marks[k].waited_ns, last_ns);
      last_step = marks[k].step, last_ns = marks[k].waited_ns;
    }
    EXPECT_LE(p.read().in_step, 1);
  }
  writer.join();
}

// Ranks are read at different steps; rank 2 takes 5 ms more of its own in every one.
TEST(Stragglers, WhoIsWaitedFor) {
  constexpr int kRanks = 3;
  Stragglers stragglers(kRanks);
  std::vector<int64_t> at(kRanks, 0);
  for (int round = 0; round < 40; ++round) {
    for (int r = 0; r < kRanks; ++r) {
      const auto i = static_cast<size_t>(r);
      at[i] += 7 + (round + r) % 3;
      std::array<Position::Mark, Position::kMarks> marks;
      for (int k = 0; k < Position::kMarks; ++k) {
        const int64_t step = at[i] >> k << k;
        marks[static_cast<size_t>(k)] = {step, step * (r == 2 ? 1'000'000 : 6'000'000)};
      }
      stragglers.set(r, marks);
    }
    stragglers.compare();
  }
  const auto rows = stragglers.rows();
  EXPECT_GT(stragglers.steps(), 200);
  EXPECT_NEAR(rows[2].late, 5e-3 * static_cast<double>(stragglers.steps()), 1e-9);
  EXPECT_EQ(rows[0].late, 0);
  EXPECT_EQ(rows[1].late, 0);
  EXPECT_NE(to_table(rows, stragglers.steps()).find("    2"), std::string::npos);
}

}  // namespace
}  // namespace lathe::comm
