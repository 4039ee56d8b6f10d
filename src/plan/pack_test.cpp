#include "plan/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <random>

#include "base/checked.h"

namespace lathe {
namespace {

void check_packing(const std::vector<Interval>& v, const PackSpace& space, const Packing& p) {
  ASSERT_EQ(p.offsets.size(), v.size());
  int64_t end = space.base, naive = 0;
  for (size_t i = 0; i < v.size(); ++i) {
    ASSERT_EQ(p.offsets[i] % space.alignment, 0);
    ASSERT_GE(p.offsets[i], space.base);
    if (v[i].bytes == 0) continue;
    const int64_t size = round_up(v[i].bytes, space.alignment);
    naive += size;
    end = std::max(end, p.offsets[i] + size);
    ASSERT_EQ(p.offsets[i] / space.chunk, (p.offsets[i] + size - 1) / space.chunk) << "crosses a chunk";
    for (size_t j = 0; j < i; ++j) {
      if (v[j].bytes == 0 || v[i].last < v[j].first || v[j].last < v[i].first) continue;
      const int64_t size_j = round_up(v[j].bytes, space.alignment);
      ASSERT_TRUE(p.offsets[i] + size <= p.offsets[j] || p.offsets[j] + size_j <= p.offsets[i])
          << i << " and " << j << " overlap";
    }
  }
  EXPECT_EQ(p.end, end);
  EXPECT_GE(p.end - space.base, p.lower_bound);
  if (space.chunk > naive + space.base) {
    EXPECT_LE(p.end - space.base, naive);
  }
}

std::vector<Interval> random_intervals(uint32_t seed, int count, int64_t largest) {
  std::mt19937 rng(seed);
  std::vector<Interval> v;
  for (int i = 0; i < count; ++i) {
    const int32_t first = static_cast<int32_t>(rng() % 200),
                  length = static_cast<int32_t>(rng() % (rng() % 5 == 0 ? 150 : 6));
    v.push_back({rng() % 20 == 0 ? 0 : static_cast<int64_t>(rng() % largest), first, first + length});
  }
  return v;
}

TEST(Pack, RandomIntervalsAreDisjoint) {
  for (uint32_t seed = 0; seed < 60; seed += 3) {
    const auto v = random_intervals(seed, 1 + static_cast<int>(seed) * 7, 5000);
    for (const PackSpace& space : {PackSpace{}, PackSpace{.alignment = 256, .base = 1024, .chunk = 1 << 14},
                                   PackSpace{.alignment = 1, .base = 3, .chunk = 5000}}) {
      const Packing p = pack(v, space);
      check_packing(v, space, p);
      EXPECT_EQ(p.offsets, pack(v, space).offsets);
    }
  }
}

TEST(Pack, NothingAndEmptyIntervals) {
  EXPECT_EQ(pack({}, {}).end, 0);
  const std::vector<Interval> v{{0, 0, 3}, {0, 1, 1}};
  const Packing p = pack(v, {.alignment = 64, .base = 128});
  EXPECT_EQ(p.end, 128);
  EXPECT_EQ(p.lower_bound, 0);
}

// Forward values live until their backward step, in the order of a stack; each step has temporaries.
TEST(Pack, StackOfActivationsMeetsTheLowerBound) {
  std::vector<Interval> v;
  const int32_t layers = 60;
  for (int32_t i = 0; i < layers; ++i) {
    const int64_t bytes = 1000 * (layers - i) + 64;
    v.push_back({bytes, 2 * i, 4 * layers - 2 * i});
    v.push_back({bytes / 2, 2 * i, 2 * i + 1});
    v.push_back({bytes, 4 * layers - 2 * i - 1, 4 * layers - 2 * i + 1});
  }
  const Packing p = pack(v, {});
  check_packing(v, {}, p);
  EXPECT_LE(static_cast<double>(p.end), 1.05 * static_cast<double>(p.lower_bound));
}

TEST(Pack, TwentyThousandIntervalsAreFast) {
  std::mt19937 rng(5);
  std::vector<Interval> v;
  const int32_t n = 20000;
  for (int32_t i = 0; i < n; ++i) {
    const int64_t bytes = static_cast<int64_t>(rng() % 100000) + 1;
    v.push_back({bytes, i, i % 4 == 0 && i < n / 2 ? n - i : i + static_cast<int32_t>(rng() % 5)});
  }
  const std::clock_t start = std::clock();  // of this process: the machine may be busy
  const Packing p = pack(v, {});
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  RecordProperty("milliseconds", static_cast<int>(seconds * 1e3));
  RecordProperty("per_mille_over", static_cast<int>(1000 * (p.end - p.lower_bound) / p.lower_bound));
  EXPECT_LT(seconds, 1.0);
  EXPECT_LE(static_cast<double>(p.end), 1.05 * static_cast<double>(p.lower_bound));
}

}  // namespace
}  // namespace lathe
