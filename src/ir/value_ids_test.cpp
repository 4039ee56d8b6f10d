#include "ir/value_ids.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "ir/name_set.h"
#include "ir/step_set.h"

namespace lathe {
namespace {

// Few values lie in the list, many outside of it: both sides of the border, and every way across it.
TEST(ValueIds, HoldsFewAndMany) {
  for (ValueId count = 0; count < 12; ++count) {
    ValueIds ids;
    std::vector<ValueId> same;
    for (ValueId v = 0; v < count; ++v) {
      ids.push_back(10 + v);
      same.push_back(10 + v);
    }
    const auto is = [&](const ValueIds& x) { return std::vector<ValueId>(x.begin(), x.end()) == same; };
    EXPECT_TRUE(is(ids)) << count;
    EXPECT_EQ(ids.empty(), count == 0);
    ValueIds copy = ids;
    EXPECT_TRUE(is(copy)) << count;
    EXPECT_EQ(copy, ids);
    const ValueIds moved = std::move(copy);
    EXPECT_TRUE(is(moved)) << count;
    for (ValueIds other : {ValueIds{}, ValueIds{1, 2}, ValueIds{1, 2, 3, 4, 5, 6}}) {
      other = ids;
      EXPECT_TRUE(is(other)) << count;
      other.push_back(99);
      EXPECT_NE(other, ids);
      EXPECT_EQ(other.back(), 99);
      EXPECT_TRUE(is(ids)) << count;
    }
    std::vector<ValueId> rest = same;
    ValueIds without = ids;
    without.append(same);
    rest.insert(rest.end(), same.begin(), same.end());
    for (const ValueId v : {12, 10, 7}) {
      without.erase(v);
      std::erase(rest, v);
      EXPECT_EQ(std::vector<ValueId>(without.begin(), without.end()), rest) << count;
    }
    ids.clear();
    EXPECT_TRUE(ids.empty());
  }
}

TEST(NameSet, FindsTheSecondOfAName) {
  std::vector<std::string> names;
  for (int i = 0; i < 1000; ++i) names.push_back("h." + std::to_string(i) + ".attn.c_attn.weight");
  NameSet set(names.size());
  for (const std::string& n : names) EXPECT_TRUE(set.insert(n)) << n;
  for (const std::string& n : names) EXPECT_FALSE(set.insert(std::string_view(n))) << n;
}

TEST(StateTable, CopiesShareRowsUntilOneChanges) {
  const auto row = [](std::string name, bool gated) {
    StateSpec s{std::move(name), {DType::f32, {2}}, InputKind::param, {}, {}};
    s.gated = gated;
    return s;
  };
  StateTable a;
  a.add(row("w", false));
  const StateTable before = a;
  EXPECT_EQ(&a[0], &before[0]);
  StateTable b = a;
  b.add(row("w", false));  // says the same
  EXPECT_EQ(&b[0], &before[0]);
  b.add(row("w", true));
  EXPECT_TRUE(b.find("w")->gated);
  a.add(row("v", false));
  EXPECT_EQ(a.size(), 2u);
  a.erase_if([](const StateSpec& s) { return s.name == "w"; });
  EXPECT_EQ(a.find("w"), nullptr);
  EXPECT_EQ(a.find("v"), &a[0]);
  ASSERT_EQ(before.size(), 1u);
  EXPECT_FALSE(before.find("w")->gated);
}

}  // namespace
}  // namespace lathe
