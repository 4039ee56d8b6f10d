#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
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

// The value of a pattern of 1 sign bit, `exponent_bits`, and the rest.
double value_of_bits(uint16_t bits, int exponent_bits) {
  const int fraction_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  const int exponent = (bits >> fraction_bits) & ((1 << exponent_bits) - 1),
            fraction = bits & ((1 << fraction_bits) - 1);
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
  const double significand = std::ldexp(fraction, -fraction_bits) + (exponent > 0 ? 1 : 0);
  return sign * std::ldexp(significand, std::max(exponent, 1) - bias);
}

// All patterns, and between each and the next: the middle goes to the even one, its neighbours to the nearer one.
template <class T>
void check_16bit(int exponent_bits) {
  const double step_down = 1 - std::ldexp(1, -23);
  for (int k = 0; k < 65536; ++k) {
    const auto bits = static_cast<uint16_t>(k);
    T x;
    x.bits = bits;
    const double want = value_of_bits(bits, exponent_bits), got = static_cast<double>(x);
    if (std::isnan(want)) {
      EXPECT_TRUE(std::isnan(got)) << k;
      EXPECT_TRUE(std::isnan(static_cast<float>(T(static_cast<float>(got))))) << k;
      continue;
    }
    ASSERT_EQ(got, want) << k;
    ASSERT_EQ(T(static_cast<float>(want)).bits, bits);
    if (std::isinf(want)) continue;
    const auto next = static_cast<uint16_t>(bits + 1);  // away from zero; the last finite one meets infinity
    double outer = value_of_bits(next, exponent_bits);
    if (std::isinf(outer)) outer = want + (want - value_of_bits(static_cast<uint16_t>(bits - 1), exponent_bits));
    const double middle = (want + outer) / 2;
    ASSERT_EQ(T(static_cast<float>(middle)).bits, bits % 2 == 0 ? bits : next) << k;
    // bf16's denormals are f32's: their middles have no f32 neighbours within one part in 2^23.
    if (std::abs(middle) < 1e-30) continue;
    ASSERT_EQ(T(static_cast<float>(middle * step_down)).bits, bits) << k;
    ASSERT_EQ(T(static_cast<float>(middle / step_down)).bits, next) << k;
  }
}

TEST(DType, SixteenBitsRoundToNearestEven) {
  check_16bit<Half>(5);
  check_16bit<BFloat16>(8);
  EXPECT_EQ(round_to(DType::f16, 65519.0), 65504.0);
  EXPECT_TRUE(std::isinf(round_to(DType::f16, 65520.0)));
  EXPECT_EQ(round_to(DType::f16, 1e-10), 0.0);
  EXPECT_TRUE(std::isinf(round_to(DType::bf16, -3.4e38)) && std::isnan(round_to(DType::bf16, std::nan(""))));
  // Through f32: the last bits of an f64 do not decide a tie.
  EXPECT_EQ(round_to(DType::f16, 1 + 0x1p-11 + 0x1p-40), 1.0);
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
