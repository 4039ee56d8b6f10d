#include "ir/type_list.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace lathe {
namespace {

// The same as a vector of types, with few and with many of them, after each change.
TEST(TypeList, IsAVector) {
  for (const int64_t distinct : {1, 3, 8, 9, 10, 100, 1000}) {
    TypeList list;
    std::vector<TensorType> expected;
    const auto type = [&](int64_t i) {
      return TensorType{i % 2 ? DType::f32 : DType::i32, {i % distinct, 1 + i % distinct / 7}};
    };
    for (int64_t i = 0; i < 3000; ++i) {
      list.push_back(type(i * i));
      expected.push_back(type(i * i));
    }
    for (int64_t i = 0; i < 3000; i += 11) {
      list.set(static_cast<size_t>(i), type(i + 5));
      expected[static_cast<size_t>(i)] = type(i + 5);
    }
    EXPECT_TRUE(std::ranges::equal(list, expected)) << distinct;
    list.truncate(100);
    expected.resize(100);
    for (int64_t i = 0; i < 500; ++i) {
      // An element of the list itself.
      list.push_back(list[static_cast<size_t>(i)]);
      expected.push_back(TensorType(expected[static_cast<size_t>(i)]));
    }
    EXPECT_TRUE(std::ranges::equal(list, expected)) << distinct;
    const TypeList copy = list;
    list.set(0, {DType::f64, {9, 9, 9}});
    EXPECT_EQ(copy[0], expected[0]);
    EXPECT_EQ(list[0], (TensorType{DType::f64, {9, 9, 9}}));
    EXPECT_EQ(list.size(), expected.size());
  }
}

TEST(TypeList, TellsTypesApart) {
  TypeList list;
  list.push_back({DType::f32, {}});
  list.push_back({DType::f32, {1}});
  list.push_back({DType::f32, {1, 1}});
  list.push_back({DType::f64, {1, 1}});
  list.push_back({DType::f32, {0}});
  for (size_t i = 0; i < list.size(); ++i)
    for (size_t k = 0; k < list.size(); ++k) EXPECT_EQ(list[i] == list[k], i == k);
}

}  // namespace
}  // namespace lathe
