#include "base/parallel.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

namespace lathe {
namespace {

TEST(Parallel, CallsEachIndexOnce) {
  for (size_t count : {size_t{0}, size_t{1}, size_t{3}, size_t{100}}) {
    std::vector<int> calls(count, 0);
    run_parallel(count, [&](size_t i) { ++calls[i]; });
    EXPECT_EQ(calls, std::vector<int>(count, 1));
  }
}

TEST(Parallel, ThrowsWhatTheLowestIndexThrewAfterAllAreDone) {
  std::vector<int> calls(40, 0);
  try {
    run_parallel(calls.size(), [&](size_t i) {
      ++calls[i];
      if (i % 10 == 7) throw std::runtime_error(std::to_string(i));
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "7");
  }
  EXPECT_EQ(calls, std::vector<int>(40, 1));
}

}  // namespace
}  // namespace lathe
