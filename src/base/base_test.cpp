#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "base/checked.h"
#include "base/philox.h"
#include "base/shape.h"
#include "base/thread_pool.h"

namespace lathe {
namespace {

TEST(Shape, CountsAndRefusesOverflow) {
  EXPECT_EQ(Shape({2, 3, 4}).numel(), 24);
  EXPECT_EQ(Shape().numel(), 1);
  EXPECT_EQ(to_string(TensorType{DType::f32, {2, 3}}), "f32[2, 3]");
  EXPECT_EQ(Shape({2, 3, 4}).strides(), (Ints{12, 4, 1}));
  EXPECT_THROW(Shape({4194305, 4194305, 211106198978564}), UserError);
  EXPECT_THROW(Shape({-1}), UserError);
  EXPECT_THROW(Shape(Ints(9, 1)), UserError);
  EXPECT_THROW(Shape({2}).dim(1), UserError);
}

TEST(DType, RoundTripsNamesAndRounds) {
  for (DType t : kAllDTypes) EXPECT_EQ(parse_dtype(to_string(t)), t);
  EXPECT_FALSE(parse_dtype("f33"));
  EXPECT_EQ(round_to(DType::u8, 300.7), 255.0);
  EXPECT_EQ(round_to(DType::i32, -2.9), -2.0);
  EXPECT_EQ(round_to(DType::f32, 0.1), static_cast<double>(0.1f));
}

TEST(Philox, MatchesPublishedVector) {
  // Known answer of the Random123 distribution for zero key and counter.
  const auto b = Philox::generate({0, 0}, {0, 0, 0, 0});
  EXPECT_EQ(b, (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
}

TEST(ThreadPool, RunsEachIndexOnceForAnyThreadCount) {
  for (int threads : {1, 2, 8}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 2000; ++round) {
      const int64_t n = round % 37;
      std::vector<int> hits(static_cast<size_t>(n), 0);
      pool.run(n, [&](int64_t i) { hits[static_cast<size_t>(i)]++; });
      ASSERT_EQ(std::accumulate(hits.begin(), hits.end(), 0), n);
      for (int h : hits) ASSERT_EQ(h, 1);
    }
  }
}

TEST(ThreadPool, BlocksCoverTheRange) {
  ThreadPool pool(3);
  std::vector<int> hits(1000, 0);
  pool.run_blocks(1000, 64, [&](int64_t b, int64_t e) {
    for (int64_t i = b; i < e; ++i) hits[static_cast<size_t>(i)]++;
  });
  for (int h : hits) EXPECT_EQ(h, 1);
}

}  // namespace
}  // namespace lathe
