#include "data/hold_out.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/arrays.h"

namespace lathe::data {
namespace {

// Samples whose one feature is their number.
class HoldOut : public testing::Test {
 protected:
  std::shared_ptr<const Source> source(std::vector<int32_t> labels, int64_t classes) {
    labels_ = std::move(labels);
    numbers_.resize(labels_.size());
    for (size_t i = 0; i < numbers_.size(); ++i) numbers_[i] = static_cast<float>(i);
    return array_source(numbers_, {1}, labels_, classes);
  }

  static std::vector<int> numbers_of(const Source& s) {
    std::vector<int> out;
    for (int64_t i = 0; i < s.size(); ++i) {
      float x = 0;
      int32_t y = 0;
      const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(&x, 1)),
                                            std::as_writable_bytes(std::span(&y, 1))};
      s.read(i, spans);
      EXPECT_EQ(s.label(i), y);
      out.push_back(static_cast<int>(x));
    }
    return out;
  }

  static std::map<int32_t, int> classes_of(const Source& s) {
    std::map<int32_t, int> out;
    for (const int32_t label : labels_of(s)) ++out[label];
    return out;
  }

  std::vector<float> numbers_;
  std::vector<int32_t> labels_;
};

std::vector<int32_t> sorted_labels(const std::vector<int>& sizes) {
  std::vector<int32_t> out;
  for (size_t c = 0; c < sizes.size(); ++c) out.insert(out.end(), static_cast<size_t>(sizes[c]), static_cast<int>(c));
  return out;
}

TEST_F(HoldOut, EveryClassGivesItsShare) {
  const auto whole = source(sorted_labels({100, 50, 30, 20}), 4);
  const HeldOut parts = hold_out(whole, 20, 1);
  EXPECT_EQ(classes_of(*parts.validation), (std::map<int32_t, int>{{0, 10}, {1, 5}, {2, 3}, {3, 2}}));
  EXPECT_EQ(classes_of(*parts.train), (std::map<int32_t, int>{{0, 90}, {1, 45}, {2, 27}, {3, 18}}));
  // Every sample is in one of them.
  std::vector<int> all = numbers_of(*parts.train), held = numbers_of(*parts.validation);
  EXPECT_TRUE(std::ranges::is_sorted(all));
  EXPECT_FALSE(std::ranges::is_sorted(held)) << "batches of validation hold several classes";
  all.insert(all.end(), held.begin(), held.end());
  EXPECT_EQ(std::set(all.begin(), all.end()).size(), 200u);
  EXPECT_EQ(all.size(), 200u);
}

TEST_F(HoldOut, SharesAreRoundedSoThatTheSumIsExact) {
  // Exact: 10 * 33 / 100 = 3.3, 3.4, 3.3.
  EXPECT_EQ(classes_of(*hold_out(source(sorted_labels({33, 34, 33}), 3), 10, 7).validation),
            (std::map<int32_t, int>{{0, 3}, {1, 4}, {2, 3}}));
  // A class of one sample keeps it in training, though its fraction is the largest, unless others would lose theirs.
  EXPECT_EQ(classes_of(*hold_out(source(sorted_labels({1, 5, 5}), 3), 7, 3).validation),
            (std::map<int32_t, int>{{1, 4}, {2, 3}}));
  EXPECT_EQ(classes_of(*hold_out(source(sorted_labels({1, 5, 5}), 3), 9, 3).validation),
            (std::map<int32_t, int>{{0, 1}, {1, 4}, {2, 4}}));
}

TEST_F(HoldOut, IsAFunctionOfTheSeed) {
  const auto whole = source(sorted_labels({50, 50}), 2);
  const HeldOut a = hold_out(whole, 20, 1), again = hold_out(whole, 20, 1), b = hold_out(whole, 20, 2);
  EXPECT_EQ(numbers_of(*a.validation), numbers_of(*again.validation));
  EXPECT_EQ(a.fingerprint, again.fingerprint);
  EXPECT_NE(numbers_of(*a.validation), numbers_of(*b.validation));
  EXPECT_NE(a.fingerprint, b.fingerprint);
  // Fixed for good: a run of yesterday is resumed today.
  EXPECT_EQ(numbers_of(*hold_out(source(sorted_labels({4, 4}), 2), 4, 0).validation), (std::vector{0, 6, 1, 4}));
}

TEST_F(HoldOut, NumbersAreShuffledAlone) {
  std::vector<float> x(100), y(100);
  for (size_t i = 0; i < x.size(); ++i) x[i] = y[i] = static_cast<float>(i);
  const auto whole = array_source(x, {1}, ArrayLabels::values(y));
  EXPECT_FALSE(has_labels(*whole));
  const HeldOut parts = hold_out(whole, 50, 5);
  EXPECT_EQ(parts.validation->size(), 50);
  EXPECT_EQ(parts.validation->label(0), std::nullopt);
  EXPECT_EQ(parts.validation->label_units().mean, whole->label_units().mean);
  EXPECT_EQ(parts.validation->resident_bytes(), whole->resident_bytes()) << "a view";
}

TEST(HeldOutCount, RoundsDown) {
  EXPECT_EQ(held_out_count(0.1, 99), 9);
  EXPECT_EQ(held_out_count(0, 99), 0);
  EXPECT_EQ(held_out_count(0.999, 10), 9);
}

}  // namespace
}  // namespace lathe::data
