#include "backend/cpu/normal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "base/philox.h"

namespace lathe::cpu {
namespace {

TEST(FillNormal, IsBoxMullerOfTheStream) {
  const CounterRng rng(7, 11, 13, 17);
  const UniformKey key = uniform_key(7, 11, 13, 17);
  const int64_t begin = 3 * kNormalBlock;
  for (const int64_t n : {int64_t{1}, int64_t{37}, kNormalBlock}) {
    std::vector<float> y(static_cast<size_t>(n) + 1, 99.0f);
    fill_normal(key, 0.5, y.data(), begin, n);
    for (int64_t i = 0; i < n; ++i) {
      const auto k = static_cast<uint64_t>(begin + i);
      const double radius = std::sqrt(-2.0 * std::log(1.0 - static_cast<double>(rng.uniform(2 * k))));
      const double expected =
          0.5 * radius * std::cos(2.0 * std::numbers::pi * static_cast<double>(rng.uniform(2 * k + 1)));
      // A wrong last bit of f64 may turn a rounding to f32.
      EXPECT_NEAR(y[static_cast<size_t>(i)], expected, std::abs(expected) * 0x1p-23) << i;
    }
    EXPECT_EQ(y.back(), 99.0f);
  }
}

}  // namespace
}  // namespace lathe::cpu
