#include "base/shared_string.h"

#include <gtest/gtest.h>

namespace lathe {
namespace {

TEST(SharedString, IsAText) {
  const SharedString none, empty = "", layer = std::string("layers.11.attention"), copy = layer;
  EXPECT_TRUE(none.empty() && empty.empty() && !layer.empty());
  EXPECT_EQ(none.str(), "");
  EXPECT_TRUE(layer == "layers.11.attention");
  EXPECT_EQ(&copy.str(), &layer.str());  // one text
  EXPECT_TRUE(copy == layer && none == empty && !(none == layer));
  EXPECT_EQ(fmt::format("{}|{:>4}|{}", layer, SharedString("a"), none), "layers.11.attention|   a|");
}

}  // namespace
}  // namespace lathe
