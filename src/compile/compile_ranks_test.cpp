// Plans for all ranks of a run, and the link that they are made with.
#include "compile/compile_ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "passes/bucket.h"

namespace lathe::compile_ranks_test {
namespace {

Recipe recipe(const Sets& sets = {}) {
  return parse_recipe(R"(
    data = { source = "synthetic", shape = [8, 8, 1], classes = 4, train_samples = 64, test_samples = 30 }
    model = { family = "mlp", hidden = [96, 64] }
    train = { steps = 4, batch_size = 10 }
    device.threads = 1
  )",
                      "ranks.toml", sets);
}

std::vector<RankPlan> plans(const Recipe& r, int ranks) { return compile_ranks(r, describe_data(r), {}, ranks); }

// 10 samples are 3, 3, 2 and 2; the tail of 4 and the test set's 30 = 3 x 10 divide by the ranks or as the batch does.
TEST(CompileRanks, EqualRanksArePlannedOnce) {
  for (const int shard : {0, 3}) {
    const Recipe r = recipe({fmt::format("parallel.shard={}", shard), "parallel.shard_least=1"});
    const std::vector<RankPlan> found = plans(r, 4);
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].ranks.last, 2);
    EXPECT_EQ(found[1].ranks.last, 4);
    for (const RankPlan& p : found)
      for (int64_t rank = p.ranks.first; rank < p.ranks.last; ++rank) {
        CompileOptions o;
        o.mesh = {4, static_cast<int>(rank)};
        const Compiled own = compile(r, describe_data(r), o);
        EXPECT_EQ(own.memory().total(), p.compiled.memory().total()) << rank;
        EXPECT_EQ(own.set.arena_bytes, p.compiled.set.arena_bytes) << rank;
      }
  }
}

// However many ranks, there are as many plans as sizes of parts.
TEST(CompileRanks, ThousandsOfRanksAreFewPlans) {
  const std::vector<RankPlan> even =
      plans(recipe({"train.batch_size=16", "train.eval_batch=16", "data.test_samples=32"}), 8);
  EXPECT_EQ(even.size(), 1u);
  const std::vector<RankPlan> many = plans(recipe(), 1024);
  EXPECT_LE(many.size(), 3u);  // 4 ranks have samples of the tail, 10 of a batch
  EXPECT_EQ(many.back().ranks.last, 1024);
}

int64_t bucket_of(const Recipe& r, int ranks, const CompileOptions& options = {}) {
  CompileOptions o = options;
  o.mesh = {ranks, 0};
  return compile(r, describe_data(r), o).recipe.passes.get<BucketOptions>().bytes.bytes;
}

// The recipe of a plan has the buckets that it was made with.
TEST(CompileRanks, BucketsFollowTheLink) {
  EXPECT_EQ(bucket_of(recipe(), 1), 0);
  EXPECT_EQ(bucket_of(recipe(), 2), bucket_bytes(Link{}, 2));
  CompileOptions slow;
  slow.link = Link{1e-3, 1e9};
  EXPECT_EQ(bucket_of(recipe(), 2, slow), bucket_bytes(*slow.link, 2));
  EXPECT_NE(bucket_of(recipe(), 2, slow), bucket_of(recipe(), 2));
  CompileOptions kept = slow;
  kept.bucket = 96 << 10;  // of the run that goes on
  EXPECT_EQ(bucket_of(recipe(), 2, kept), 96 << 10);
  EXPECT_EQ(bucket_of(recipe({"parallel.bucket=128KiB"}), 2, kept), 128 << 10);  // the user's wins
  EXPECT_EQ(bucket_of(recipe({"parallel.same_bits=true"}), 2, slow), 0);         // there are none
}

// Layers of 18 kB: buckets of a byte are one for each of 6 gradients and the metrics, large ones are one.
TEST(CompileRanks, ThePlanHasTheBucketsOfItsRecipe) {
  const auto collectives = [](const Recipe& r) {
    CompileOptions o;
    o.mesh = {2, 0};
    const Compiled c = compile(r, describe_data(r), o);
    return std::ranges::count_if(c.set.programs[c.program("train")].launches,
                                 [](const Launch& l) { return l.node.op->is_collective(); });
  };
  EXPECT_GT(collectives(recipe({"parallel.bucket=1B"})), 6);
  EXPECT_LT(collectives(recipe()), 4);
}

}  // namespace
}  // namespace lathe::compile_ranks_test
