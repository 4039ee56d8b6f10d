#include "loop/rank_rows.h"

#include <gtest/gtest.h>

#include "comm/run_ranks.h"
#include "comm/threads.h"
#include "loop/trainer.h"

namespace lathe {
namespace {

RankRow row(int rank, double exposed) {
  return {rank, "h" + std::to_string(rank), 10, 20, 8, exposed, 0.5, 1e9, 4096, 4096, 8192};
}

TEST(RankRows, WhoWaitsLeastIsWaitedFor) {
  std::vector<RankRow> rows{row(0, 5), row(1, 7), row(2, 1)};
  EXPECT_EQ(late_seconds(rows, rows[0]), 2);
  EXPECT_EQ(late_seconds(rows, rows[1]), 0);
  EXPECT_EQ(late_seconds(rows, rows[2]), 6);
  EXPECT_EQ(find_straggler(rows), &rows[2]);
  const std::string text = straggler_text(rows);
  EXPECT_NE(text.find("rank 2 on h2: another one waited 6"), text.npos) << text;
  EXPECT_NE(text.find("30.0 % of the time"), text.npos) << text;
  // The others wait while the first rank writes a checkpoint; it is not slow.
  for (RankRow& r : rows)
    if (r.rank > 0) r.seconds += 100, r.exposed += 100;
  EXPECT_EQ(find_straggler(rows), &rows[2]);
  EXPECT_EQ(straggler_text({rows.data(), 1}), "");
  EXPECT_EQ(straggler_text({}), "");
}

TEST(RankRows, OddNumbersAreZero) {
  const RankRow r = row(3, 2);
  const RankRow back = parse_rank_row(to_json(r));
  EXPECT_EQ(to_json(back), to_json(r));
  EXPECT_EQ(back.host, "h3");
  EXPECT_EQ(back.allocated, 4096);
  for (const char* text : {"", "[]", "{}", R"({"rank":"x","host":7,"seconds":null,"memory_predicted":1.5})"}) {
    const RankRow none = parse_rank_row(text);
    EXPECT_EQ(none.rank, 0) << text;
    EXPECT_EQ(none.seconds, 0) << text;
    EXPECT_EQ(none.host, "") << text;
    EXPECT_EQ(none.predicted, 0) << text;
  }
}

TEST(RankRows, TheFirstRankHasThoseOfAll) {
  const auto groups = comm::thread_groups(3, {});
  comm::run_ranks(groups, [](comm::Group& g) {
    TrainResult own;
    own.seconds = 10 + g.rank();
    own.communication_seconds = g.rank();
    own.memory.arena = own.allocated = 100 * g.rank();
    const std::vector<RankRow> rows = gather_ranks(g, own, 7);
    ASSERT_EQ(rows.size(), g.rank() == 0 ? 3u : 0u);
    for (size_t r = 0; r < rows.size(); ++r) {
      EXPECT_EQ(rows[r].rank, static_cast<int>(r));
      EXPECT_EQ(rows[r].seconds, 10 + static_cast<double>(r));
      EXPECT_EQ(rows[r].predicted, 100 * static_cast<int64_t>(r));
      EXPECT_EQ(rows[r].allocated, rows[r].predicted);
      EXPECT_EQ(rows[r].steps, 7);
      EXPECT_NE(rows[r].host, "");
    }
  });
}

}  // namespace
}  // namespace lathe
