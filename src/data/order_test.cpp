#include "data/order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

namespace lathe::data {
namespace {

std::vector<int64_t> all(uint64_t seed, int64_t epoch, int64_t n) {
  const SampleOrder order(seed, epoch, n);
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < n; ++i) samples.push_back(order(i));
  return samples;
}

TEST(SampleOrder, IsAPermutationForEverySize) {
  const auto check = [](int64_t n, uint64_t seed) {
    std::vector<int64_t> samples = all(seed, 3, n);
    std::sort(samples.begin(), samples.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(samples[static_cast<size_t>(i)], i) << "n = " << n << ", seed = " << seed;
  };
  for (int64_t n = 1; n <= 300; ++n) check(n, static_cast<uint64_t>(n));
  for (int64_t n : {1023, 1024, 1025, 4097, 60000, 65536, 65537}) check(n, 7);
}

TEST(SampleOrder, DependsOnSeedAndEpochOnly) {
  EXPECT_EQ(all(1, 0, 1000), all(1, 0, 1000));
  EXPECT_NE(all(1, 0, 1000), all(2, 0, 1000));
  EXPECT_NE(all(1, 0, 1000), all(1, 1, 1000));
  EXPECT_NE(all(1, 0, 1000), all(1 + (uint64_t{1} << 32), 0, 1000));
  const SampleOrder plain(1, 0, 10, false);
  for (int64_t i = 0; i < 10; ++i) EXPECT_EQ(plain(i), i);
}

TEST(SampleOrder, ReachesAllOrdersOfThreeSamples) {
  std::set<std::vector<int64_t>> seen;
  for (uint64_t seed = 0; seed < 200; ++seed) seen.insert(all(seed, 0, 3));
  EXPECT_EQ(seen.size(), 6u);
}

// Every sample is about equally likely at every position: chi-squared over 20 x 20 cells, 361 degrees of freedom
// (mean 361, standard deviation 27).
TEST(SampleOrder, IsUniform) {
  constexpr int n = 20, trials = 4000;
  std::vector<int> counts(n * n);
  for (int seed = 0; seed < trials; ++seed) {
    const auto samples = all(static_cast<uint64_t>(seed), 0, n);
    for (size_t i = 0; i < n; ++i) ++counts[i * n + static_cast<size_t>(samples[i])];
  }
  double chi = 0;
  const double expected = double{trials} / n;
  for (int count : counts) chi += (count - expected) * (count - expected) / expected;
  EXPECT_LT(chi, 361 + 5 * 27);
  EXPECT_GT(chi, 361 - 5 * 27);
}

TEST(SampleOrder, WorksForHugeCounts) {
  const int64_t n = (int64_t{1} << 40) + 12345;
  const SampleOrder order(5, 9, n);
  std::set<int64_t> seen;
  for (int64_t i = 0; i < 1000; ++i) {
    const int64_t sample = order(n - 1 - i);
    EXPECT_GE(sample, 0);
    EXPECT_LT(sample, n);
    EXPECT_TRUE(seen.insert(sample).second);
  }
}

}  // namespace
}  // namespace lathe::data
