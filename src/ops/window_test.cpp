#include "ops/window.h"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"

namespace lathe {
namespace {

// By definition: for every small geometry, what the formulas say is what counting says.
TEST(Window, FormulasAgreeWithCounting) {
  for (int64_t in = 1; in <= 7; ++in)
    for (int64_t kernel = 1; kernel <= 4; ++kernel)
      for (int64_t stride = 1; stride <= 4; ++stride)
        for (int64_t before = 0; before <= 3; ++before)
          for (int64_t after = 0; after <= 3; ++after)
            for (int64_t dilation = 1; dilation <= 3; ++dilation) {
              int64_t count = 0;
              while (count * stride + (kernel - 1) * dilation < before + in + after) ++count;
              ASSERT_EQ(window_count("op", in, kernel, stride, before, after, dilation), count);
              if (count == 0) {
                EXPECT_THROW(window_axis("op", "height", in, kernel, stride, before, after, dilation), UserError);
                continue;
              }
              const WindowAxis a = window_axis("op", "height", in, kernel, stride, before, after, dilation);
              EXPECT_EQ(a.out, count);
              EXPECT_EQ(a.at(0, 0), -before);
              EXPECT_EQ(a.at(1, kernel - 1) - a.at(0, 0), stride + a.reach() - 1);
              if (dilation > 1) continue;
              bool once = true;  // every position is in one window, which has no padding
              for (int64_t o = 0; o < count; ++o) {
                const WindowRange r = a.positions(o);
                once = once && r.end - r.begin == kernel;
                for (int64_t i = 0; i < in; ++i) {
                  const bool covers = i >= a.at(o, 0) && i <= a.at(o, kernel - 1);
                  const WindowRange w = a.windows_over(i);
                  ASSERT_EQ(i >= r.begin && i < r.end, covers) << in << kernel << stride << before << after;
                  ASSERT_EQ(o >= w.begin && o < w.end, covers) << in << kernel << stride << before << after;
                }
              }
              for (int64_t i = 0; i < in; ++i) once = once && a.windows_over(i).end - a.windows_over(i).begin == 1;
              // A single window tiles whatever its stride is, which nobody asks for.
              ASSERT_EQ(a.tiles(), once && kernel == stride) << in << kernel << stride << before << after;
            }
}

TEST(Window, RefusesWhatMakesNoSense) {
  constexpr int64_t kHuge = std::numeric_limits<int64_t>::max();
  EXPECT_THROW(window_axis("op", "width", 0, 1, 1, 0, 0), UserError);
  EXPECT_THROW(window_axis("op", "width", 4, 0, 1, 0, 0), UserError);
  EXPECT_THROW(window_axis("op", "width", 4, 2, 0, 0, 0), UserError);
  EXPECT_THROW(window_axis("op", "width", 4, 2, 1, -1, 0), UserError);
  EXPECT_THROW(window_axis("op", "width", 4, 2, 1, 0, 0, 0), UserError);
  EXPECT_THROW(window_axis("op", "width", 4, 2, 1, kHuge, 1), UserError);
  EXPECT_THROW(window_axis("op", "width", 4, kHuge, 1, 0, 0, 2), UserError);
  try {
    window_axis("conv2d", "width", 4, 3, 1, 0, 1, 3);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("conv2d: width: the kernel covers 7 of a padded input of 5"),
              std::string::npos)
        << e.what();
  }
}

}  // namespace
}  // namespace lathe
