#include "base/did_you_mean.h"

#include <gtest/gtest.h>

#include <string>

namespace lathe {
namespace {

TEST(DidYouMean, CountsErrorsOfTyping) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("", "abc"), 3);
  EXPECT_EQ(edit_distance("fuse", "FUSE"), 0);
  EXPECT_EQ(edit_distance("fuse", "fuze"), 1);
  EXPECT_EQ(edit_distance("fuse", "fues"), 1);  // two letters that changed places are one error
  EXPECT_EQ(edit_distance("fuse", "fus"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
  EXPECT_EQ(edit_distance(std::string(200, 'a'), std::string(200, 'a') + "b"), 0);  // both are cut
  EXPECT_EQ(word_distance("batch", "batch_size"), 1);
  EXPECT_EQ(word_distance("ba", "batch_size"), 8);  // too short to be a beginning
}

TEST(DidYouMean, FindsTheNearestThatMayBeMeant) {
  const std::string_view words[] = {"autodiff", "fold", "fuse", "fuse_all", "dce"};
  EXPECT_EQ(did_you_mean("fuze", words), "fuse");
  EXPECT_EQ(did_you_mean("Fuse", words), "fuse");
  EXPECT_EQ(did_you_mean("dec", words), "dce");
  EXPECT_EQ(did_you_mean("auto", words), "autodiff");
  EXPECT_EQ(did_you_mean("xyz", words), std::nullopt);
  EXPECT_EQ(did_you_mean("", words), std::nullopt);
  EXPECT_EQ(did_you_mean("fuse", {}), std::nullopt);
}

}  // namespace
}  // namespace lathe
