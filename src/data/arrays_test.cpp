#include "data/arrays.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

namespace lathe::data {
namespace {

TEST(Arrays, SamplesAreReadFromTheCallersMemory) {
  std::vector<float> x{1, 2, 3, 4, 5, 6};
  const std::vector<int32_t> labels{0, 2, 1};
  const auto source = array_source(x, {2}, labels, 3);
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(source->classes(), 3);
  EXPECT_EQ(source->resident_bytes(), 0);
  EXPECT_EQ(source->fields()[0].type, (TensorType{DType::f32, {1, 2, 1}}));
  x[3] = 40;  // no copy was made
  float sample[2];
  int32_t label = -1;
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(sample)),
                                        std::as_writable_bytes(std::span(&label, 1))};
  source->read(1, spans);
  EXPECT_EQ(sample[0], 3);
  EXPECT_EQ(sample[1], 40);
  EXPECT_EQ(label, 2);
}

TEST(Arrays, PixelsKeepTheirShape) {
  const std::vector<uint8_t> x(2 * 4 * 5 * 3);
  const std::vector<int32_t> labels{0, 1};
  EXPECT_EQ(array_source(x, {4, 5, 3}, labels, 2)->fields()[0].type, (TensorType{DType::u8, {4, 5, 3}}));
  EXPECT_EQ(array_source(x, {4, 15}, labels, 2)->fields()[0].type, (TensorType{DType::u8, {4, 15, 1}}));
}

std::string error_of(const std::vector<float>& x, const Shape& sample, const std::vector<int32_t>& labels) {
  try {
    array_source(x, sample, labels, 2);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Arrays, WhatDoesNotFitIsRefused) {
  EXPECT_NE(error_of({1, 2, 3}, {2}, {0, 1}).find("expected 2 elements for each of 2 labels, got 3"),
            std::string::npos);
  EXPECT_NE(error_of({1, 2, 3, 4}, {2}, {0, 2}).find("expected labels below 2, got 2 for sample 1"), std::string::npos);
  EXPECT_NE(error_of({1, 2}, {2}, {-1}).find("got -1 for sample 0"), std::string::npos);
  EXPECT_NE(error_of({}, {2}, {}).find("at least one sample"), std::string::npos);
  EXPECT_NE(error_of({1, 2}, {}, {0}).find("1 to 3 axes"), std::string::npos);
}

TEST(Arrays, NumbersThatAreNoneAreNamed) {
  // Behind the first block that is looked at, of either sign.
  std::vector<float> x(3 * 5000, 3e38f);
  const std::vector<int32_t> labels(5000, 1);
  EXPECT_EQ(error_of(x, {3}, labels), "");
  x[3 * 4321 + 2] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(error_of(x, {3}, labels), "array_source: expected finite numbers, got -inf as element 2 of sample 4321");
  x[7] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_EQ(error_of(x, {3}, labels), "array_source: expected finite numbers, got nan as element 1 of sample 2");
}

template <class X>
std::string error_with(const std::vector<X>& x, const Shape& sample, const ArrayLabels& y) {
  try {
    array_source(std::span<const X>(x), sample, y);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

TEST(Arrays, ValuesAreStandardised) {
  const std::vector<float> x{1, 2, 3, 4, 5, 6}, y{10, 30, 20, 40, 10, 70};
  const auto source = array_source(x, {2}, ArrayLabels::values(y, 2));
  EXPECT_EQ(source->size(), 3);
  EXPECT_EQ(source->classes(), 2);
  EXPECT_EQ(source->fields()[1].type, (TensorType{DType::f32, {2}}));
  const LabelUnits u = source->label_units();
  // Each column by itself: 10, 20, 10 and 30, 40, 70.
  ASSERT_EQ(u.means.size(), 2u);
  ASSERT_EQ(u.scales.size(), 2u);
  EXPECT_DOUBLE_EQ(u.mean_of(0), 40.0 / 3);
  EXPECT_DOUBLE_EQ(u.mean_of(1), 140.0 / 3);
  EXPECT_NEAR(u.scale_of(0), std::sqrt(200.0 / 9), 1e-9);
  EXPECT_NEAR(u.scale_of(1), std::sqrt(2600.0 / 9), 1e-9);
  float sample[2], target[2];
  const std::span<std::byte> spans[] = {std::as_writable_bytes(std::span(sample)),
                                        std::as_writable_bytes(std::span(target))};
  source->read(2, spans);
  EXPECT_EQ(sample[1], 6);
  EXPECT_NEAR(target[0] * u.scale_of(0) + u.mean_of(0), 10, 1e-4);
  EXPECT_NEAR(target[1] * u.scale_of(1) + u.mean_of(1), 70, 1e-4);
  const auto small = array_source(x, {2}, ArrayLabels::values(std::vector<float>{1e-7f, 2e-7f, 3e-7f}));
  EXPECT_NEAR(small->label_units().scale, 1e-7 * std::sqrt(2.0 / 3), 1e-13);
  // All equal: no division by nothing.
  EXPECT_EQ(array_source(x, {2}, ArrayLabels::values(std::vector<float>{7, 7, 7}))->label_units().scale, 1);
}

TEST(Arrays, MasksAndImagesHaveTheSizeOfTheirSample) {
  const std::vector<uint8_t> x(2 * 4 * 5 * 3, 9);
  std::vector<uint8_t> masks(2 * 4 * 5, 1), images = x;
  masks[25] = 2;
  images[60] = 100;
  const auto mask = array_source(x, {4, 5, 3}, ArrayLabels::masks(masks, 3));
  EXPECT_EQ(mask->fields()[1].type, (TensorType{DType::u8, {4, 5}}));
  EXPECT_EQ(mask->classes(), 3);
  std::vector<std::byte> sample(60), target(20), clean(60);
  const std::span<std::byte> spans[] = {sample, target}, both[] = {sample, clean};
  mask->read(1, spans);
  EXPECT_EQ(target[5], std::byte{2});
  const auto image = array_source(x, {4, 5, 3}, ArrayLabels::images(images));
  EXPECT_EQ(image->fields()[1].type, image->fields()[0].type);
  EXPECT_EQ(image->classes(), 3);
  image->read(1, both);
  EXPECT_EQ(clean[0], std::byte{100});
  EXPECT_EQ(sample[0], std::byte{9});
}

TEST(Arrays, TargetsThatDoNotFitAreRefused) {
  const std::vector<float> x(6), y(3);
  const std::vector<uint8_t> pixels(2 * 6), masks{0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 2};
  const auto expect = [](const std::string& error, const std::string& part) {
    EXPECT_NE(error.find(part), std::string::npos) << error << " has no " << part;
  };
  expect(error_with(x, {2}, ArrayLabels::values(y, 2)), "expected 2 elements of the values for each sample, got 3");
  expect(error_with(x, {3}, ArrayLabels::values(y)), "expected 3 elements for each of 3 values, got 6");
  expect(error_with(x, {2}, ArrayLabels::values(y, 0)), "at least one number per sample, got 0");
  expect(error_with(x, {2}, ArrayLabels::values({})), "at least one sample");
  expect(error_with(x, {2}, ArrayLabels::values(std::vector<float>{1, 2, INFINITY})), "number 2 is none");
  expect(error_with(pixels, {2, 3}, ArrayLabels::masks(masks, 2)), "classes of pixels below 2, got 2 for sample 1");
  expect(error_with(pixels, {2, 3}, ArrayLabels::masks(masks, 300)), "at most 256 classes");
  expect(error_with(pixels, {2, 3}, ArrayLabels::masks(std::span(masks).first(9), 3)), "expected 6 elements");
  expect(error_with(pixels, {2, 3}, ArrayLabels::masks(std::span(masks).first(6), 3)),
         "expected 6 elements for each of 1 masks, got 12");
  expect(error_with(pixels, {2, 3}, ArrayLabels::images(std::span(masks).first(6))), "each of 1 images");
  expect(error_with(x, {2}, ArrayLabels::images(masks)), "expected samples of bytes for images, got f32");
}

}  // namespace
}  // namespace lathe::data
