#include "data/arrays.h"

#include <gtest/gtest.h>

#include <cstring>

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

}  // namespace
}  // namespace lathe::data
