#include "loop/lr_find.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lathe {
namespace {

LrFind curve(double (*loss)(double log_lr)) {
  LrFind f;
  for (int i = 0; i <= 140; ++i) {
    const double x = -6 + i / 20.0, y = loss(x);
    f.points.push_back({std::pow(10.0, x), y, y});
  }
  judge(f);
  return f;
}

TEST(LrFind, SuggestsTheSteepestFall) {
  // Flat, a fall around 10^-2, a rise after 10^-1.
  const LrFind f = curve([](double x) { return 2 - std::tanh(2 * (x + 2)) + std::exp(4 * (x - 0.5)); });
  ASSERT_TRUE(f.suggested);
  EXPECT_NEAR(std::log10(*f.suggested), -2, 0.11);
  EXPECT_GT(f.lowest, *f.suggested);
}

TEST(LrFind, SuggestsNothingWhereNothingFalls) {
  EXPECT_FALSE(curve([](double) { return 2.3; }).suggested);
  EXPECT_FALSE(curve([](double x) { return 3 + x / 10; }).suggested);
  LrFind none;
  judge(none);
  EXPECT_FALSE(none.suggested);
}

}  // namespace
}  // namespace lathe
