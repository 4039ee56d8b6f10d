#include "rundir/progress.h"

#include <gtest/gtest.h>

#include <cmath>

namespace lathe {
namespace {

TEST(Progress, LossesAreShortWhateverTheirSize) {
  EXPECT_EQ(loss_text(0.34841), "0.3484");
  EXPECT_EQ(loss_text(0), "0.0000");
  EXPECT_EQ(loss_text(-12.5), "-12.5000");
  EXPECT_EQ(loss_text(459916347818853269504.0), "4.599e+20");
  EXPECT_EQ(loss_text(3.21e-7), "3.21e-07");
  EXPECT_EQ(loss_text(-std::nan("")), "nan");
}

}  // namespace
}  // namespace lathe
