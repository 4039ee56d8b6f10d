#include "base/format_bytes.h"

#include <gtest/gtest.h>

#include <limits>

namespace lathe {
namespace {

TEST(FormatBytes, TakesTheLargestUnitThatIsReached) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.0 KiB");
  EXPECT_EQ(format_bytes(3 << 19), "1.5 MiB");
  EXPECT_EQ(format_bytes(int64_t{5} << 30), "5.0 GiB");
  EXPECT_EQ(format_bytes(int64_t{2} << 50), "2048.0 TiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::max()), "8388608.0 TiB");
}

// A difference of two sizes: what plan/arena's formatter wrote as "-3145728 B".
TEST(FormatBytes, TakesNegativeSizes) {
  EXPECT_EQ(format_bytes(-17), "-17 B");
  EXPECT_EQ(format_bytes(-3 << 20), "-3.0 MiB");
}

TEST(FormatBytes, OneUnitForSeveralSizes) {
  EXPECT_EQ(byte_unit(3 << 20).name, "MiB");
  EXPECT_EQ(byte_unit(3 << 20).bytes, 1 << 20);
  EXPECT_EQ(byte_unit(-1023).name, "B");
}

}  // namespace
}  // namespace lathe
