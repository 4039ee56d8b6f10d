#include "io/page/series_png.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace lathe::io {
namespace {

TEST(SeriesPng, DrawsWhatIsFinite) {
  std::vector<float> v(500);
  for (size_t i = 0; i < v.size(); ++i) v[i] = std::sin(static_cast<float>(i) / 20);
  const std::string wave = series_png(v, 1), flat = series_png(std::vector<float>(500, 3.0f), 1);
  EXPECT_TRUE(wave.starts_with("\x89PNG"));
  EXPECT_NE(wave, flat);
  EXPECT_NE(wave, series_png(v, 5));  // five lines of 100
  v[7] = NAN;
  EXPECT_TRUE(series_png(v, 1).starts_with("\x89PNG"));
  EXPECT_TRUE(series_png(std::vector<float>{2e38f, -2e38f}, 1).starts_with("\x89PNG"));
  EXPECT_TRUE(series_png(std::vector<float>{1}, 1).starts_with("\x89PNG"));
  EXPECT_EQ(series_png({}, 1), "");
  EXPECT_EQ(series_png(std::vector<float>{NAN, INFINITY}, 1), "");
  EXPECT_EQ(series_png(std::vector<float>{1, 2}, 3), "");
}

}  // namespace
}  // namespace lathe::io
