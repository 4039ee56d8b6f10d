#include "comm/control/difference.h"

#include <gtest/gtest.h>

#include <barrier>
#include <thread>

#include "base/philox.h"

namespace lathe::comm {
namespace {

struct Result {
  std::string text;
  size_t bytes = 0;     // on the wire, of all ranks
  size_t messages = 0;  // of rank 0
};

Result compare(const std::vector<std::vector<Item>>& lists) {
  const size_t ranks = lists.size();
  std::barrier all(static_cast<ptrdiff_t>(ranks));
  std::vector<std::string> sent(ranks), texts(ranks);
  std::string down;
  Result result;
  std::vector<std::thread> threads;
  for (size_t r = 0; r < ranks; ++r)
    threads.emplace_back([&, r] {
      const Exchange exchange{[&](const std::string& text) -> std::vector<std::string> {
                                sent[r] = text;
                                all.arrive_and_wait();
                                const auto out = r == 0 ? sent : std::vector<std::string>();
                                for (const std::string& t : out) result.bytes += t.size();
                                if (r == 0) ++result.messages;
                                all.arrive_and_wait();
                                return out;
                              },
                              [&](const std::string& text) -> std::string {
                                if (r == 0) down = text;
                                all.arrive_and_wait();
                                std::string out = down;
                                all.arrive_and_wait();
                                return out;
                              }};
      texts[r] = find_difference(lists[r], static_cast<int>(r), exchange);
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& t : texts) EXPECT_EQ(t, texts[0]);
  result.text = texts[0];
  return result;
}

std::vector<Item> items(int count) {
  std::vector<Item> out{{"program", "lathe 0.1"}, {"recipe", "a"}};
  for (int i = 0; i < count; ++i)
    out.push_back({"collective " + std::to_string(i), "all_reduce f32[" + std::to_string(i) + "]"});
  return out;
}

TEST(Difference, NoneInEqualLists) {
  EXPECT_EQ(compare({items(0), items(0), items(0)}).text, "");
  EXPECT_EQ(compare({{}, {}}).text, "");
  EXPECT_EQ(compare({items(1000), items(1000), items(1000)}).text, "");
}

TEST(Difference, TheFirstOneIsFoundWithFewBytes) {
  for (uint32_t seed = 0; seed < 15; ++seed) {
    const CounterRng random(seed, 2, 0, 0);
    const size_t ranks = 2 + random.below(0, 3), at = random.below(1, 4002);
    std::vector<std::vector<Item>> lists(ranks, items(4000));
    const size_t who = random.below(2, ranks);
    lists[who][at].value += "!";
    // Differences behind the first one do not matter.
    for (int more = 0; more < 5; ++more)
      lists[random.below(10 + static_cast<uint64_t>(more), ranks)]
           [at + random.below(20 + static_cast<uint64_t>(more), 4002 - at)]
               .value += "?";
    const Result r = compare(lists);
    EXPECT_NE(r.text.find("the ranks differ in " + lists[0][at].name + " "), std::string::npos) << seed << r.text;
    EXPECT_LT(r.bytes, 3000u);
    EXPECT_LT(r.messages, 20u);
  }
}

TEST(Difference, TextNamesRanksAndValues) {
  auto lists = std::vector(4, items(3));
  lists[2][1].value = "b";
  EXPECT_EQ(compare(lists).text,
            "the ranks differ in recipe (item 2 of what they compare): ranks 0, 1, 3: \"a\"; rank 2: \"b\"");
  lists = std::vector(3, items(3));
  lists[1].pop_back();
  EXPECT_EQ(
      compare(lists).text,
      "the ranks differ in collective 2 (item 5 of what they compare): ranks 0, 2: \"all_reduce f32[2]\"; rank 1: "
      "nothing more");
  lists = std::vector(2, items(3));
  lists[0].pop_back();
  EXPECT_EQ(
      compare(lists).text,
      "the ranks differ in collective 2 (item 5 of what they compare): rank 0: nothing more; rank 1: \"all_reduce "
      "f32[2]\"");
  lists = std::vector(2, items(3));
  lists[0][2].name = "x";
  EXPECT_EQ(compare(lists).text,
            "the ranks differ in x (item 3 of what they compare): rank 0: \"all_reduce f32[0]\"; rank 1: collective 0 "
            "\"all_reduce f32[0]\"");
}

TEST(Difference, LongValuesAreShownWhereTheyDiffer) {
  auto lists = std::vector(2, items(0));
  lists[0][1].value = std::string(5000, 'a') + "left\nside" + std::string(5000, 'b');
  lists[1][1].value = std::string(5000, 'a') + "right" + std::string(5000, 'b');
  const std::string text = compare(lists).text;
  EXPECT_NE(text.find("aaaleft side"), std::string::npos) << text;
  EXPECT_NE(text.find("aaaright"), std::string::npos) << text;
  EXPECT_LT(text.size(), 600u);
}

}  // namespace
}  // namespace lathe::comm
