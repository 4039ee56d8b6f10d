#include "base/block_tree.h"

#include <gtest/gtest.h>

#include <string>

namespace lathe {
namespace {

std::string text(const BlockTree& tree) {
  return fold_tree(
      tree.blocks, tree.cut,
      [&](size_t i) {
        // What a rank adds up alone is in the same order.
        std::vector<Part> single;
        for (int64_t b = tree.cut[i].first; b < tree.cut[i].last; ++b) single.push_back({b, b + 1});
        return fold_tree(
            tree.cut[i], single, [&](size_t k) { return std::to_string(single[k].first); },
            [](std::string a, std::string b) { return "(" + a + "+" + b + ")"; });
      },
      [](std::string a, std::string b) { return "(" + a + "+" + b + ")"; });
}

TEST(BlockTree, TheOrderDoesNotDependOnTheRanks) {
  EXPECT_EQ(text({5, 1}), "(((0+1)+2)+(3+4))");
  for (int64_t blocks = 1; blocks <= 20; ++blocks)
    for (int64_t ranks = 2; ranks <= blocks; ++ranks) EXPECT_EQ(text({blocks, ranks}), text({blocks, 1}));
}

TEST(BlockTree, RanksBringFewSums) {
  for (int64_t ranks = 1; ranks <= 256; ++ranks) {
    const BlockTree tree(256, ranks);
    for (int64_t r = 0; r < ranks; ++r) EXPECT_LE(tree.sums_of(r), 14u);
  }
  EXPECT_EQ(BlockTree(8, 4).cut.size(), 4u);
}

TEST(Parts, BlocksAreDividedWhole) {
  for (const int64_t items : {0, 1, 7, 8, 50, 64})
    for (int64_t ranks = 1; ranks <= 8; ++ranks) {
      int64_t at = 0;
      for (int64_t r = 0; r < ranks; ++r) {
        const Part p = part_of(items, 8, ranks, r);
        EXPECT_EQ(p.first, at);
        at = p.last;
        const Part own = part_of(8, ranks, r);
        int64_t sum = 0;
        for (int64_t b = own.first; b < own.last; ++b) sum += part_of(items, 8, b).size();
        EXPECT_EQ(p.size(), sum) << items << " on rank " << r << " of " << ranks;
      }
      EXPECT_EQ(at, items);
    }
}

}  // namespace
}  // namespace lathe
