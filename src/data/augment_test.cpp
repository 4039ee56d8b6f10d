#include "data/augment.h"

#include <gtest/gtest.h>

#include <numbers>
#include <set>
#include <vector>

#include "base/error.h"

namespace lathe::data {
namespace {

using Bytes = std::vector<std::byte>;

Bytes ramp(const Shape& shape) {
  Bytes image;
  for (int64_t i = 0; i < shape.numel(); ++i) image.push_back(static_cast<std::byte>(1 + i % 255));
  return image;
}

Bytes apply(const Shape& shape, const AugmentConfig& config, const AugmentDraw& draw) {
  Bytes out(static_cast<size_t>(shape.numel()), std::byte{0xee});
  augment(out, ramp(shape), shape, config, draw);
  return out;
}

TEST(Augment, FlipShiftAndCutoutAreExact) {
  const Shape shape{2, 3, 2};
  const auto image = ramp(shape);
  EXPECT_EQ(apply(shape, {}, {}), image);
  const Bytes flipped = apply(shape, {.flip = true}, {.flip = true});
  EXPECT_EQ(flipped[0], image[4]);
  EXPECT_EQ(flipped[1], image[5]);
  EXPECT_EQ(flipped[10], image[6]);
  const Bytes shifted = apply(shape, {.crop = 1}, {.shift_y = 1, .shift_x = -1});
  EXPECT_EQ(shifted[0], std::byte{0});  // from the left of the image
  EXPECT_EQ(shifted[2], image[6]);      // row 1, column 0
  EXPECT_EQ(shifted[6], std::byte{0});  // from below
  const Bytes cut = apply({4, 4, 1}, {.cutout = 2}, {.cut_y = 0, .cut_x = 3});
  EXPECT_EQ(cut[2], std::byte{0});
  EXPECT_EQ(cut[3], std::byte{0});
  EXPECT_NE(cut[1], std::byte{0});
  EXPECT_NE(cut[6], std::byte{0});
}

TEST(Augment, RotationByNinetyDegreesMovesPixels) {
  const Shape shape{5, 5, 1};
  const auto image = ramp(shape);
  const Bytes turned = apply(shape, {.rotate = 90}, {.angle = std::numbers::pi / 2});
  // The inverse map of (y, x) is (x, 4 - y) for a quarter turn about the centre.
  for (size_t y = 0; y < 5; ++y) {
    for (size_t x = 0; x < 5; ++x) EXPECT_EQ(turned[y * 5 + x], image[x * 5 + (4 - y)]) << y << "," << x;
  }
  // A small angle keeps the centre.
  EXPECT_EQ(apply(shape, {.rotate = 5}, {.angle = 0.05})[12], image[12]);
}

TEST(Augment, DrawsDependOnSeedEpochAndSample) {
  const AugmentConfig config{.flip = true, .crop = 4, .rotate = 15, .cutout = 8};
  const Shape shape{28, 28, 1};
  const auto key = [&](uint64_t seed, int64_t epoch, int64_t sample) {
    const AugmentDraw d = draw_augment(config, shape, seed, epoch, sample);
    EXPECT_LE(std::abs(d.shift_y), 4);
    EXPECT_LE(std::abs(d.shift_x), 4);
    EXPECT_LE(std::abs(d.angle), 15 * std::numbers::pi / 180);
    EXPECT_TRUE(d.cut_y >= 0 && d.cut_y < 28 && d.cut_x >= 0 && d.cut_x < 28);
    return std::tuple(d.flip, d.shift_y, d.shift_x, d.angle, d.cut_y, d.cut_x);
  };
  EXPECT_EQ(key(1, 2, 3), key(1, 2, 3));
  std::set<decltype(key(0, 0, 0))> seen;
  for (int64_t sample = 0; sample < 100; ++sample) seen.insert(key(1, 0, sample));
  for (int64_t epoch = 1; epoch < 100; ++epoch) seen.insert(key(1, epoch, 0));
  for (uint64_t seed = 2; seed < 100; ++seed) seen.insert(key(seed, 0, 0));
  seen.insert(key(1, 0, int64_t{1} << 32));
  EXPECT_EQ(seen.size(), 100u + 99 + 98 + 1);
  int flips = 0;
  std::set<int64_t> shifts;
  for (int64_t sample = 0; sample < 1000; ++sample) {
    const AugmentDraw d = draw_augment(config, shape, 1, 0, sample);
    flips += d.flip;
    shifts.insert(d.shift_y);
  }
  EXPECT_NEAR(flips, 500, 80);  // five standard deviations
  EXPECT_EQ(shifts.size(), 9u);
  // Nothing is drawn that is switched off.
  const AugmentDraw none = draw_augment({}, shape, 1, 0, 5);
  EXPECT_FALSE(none.flip);
  EXPECT_EQ(none.shift_y, 0);
  EXPECT_EQ(none.angle, 0);
}

TEST(Augment, RefusesWhatDoesNotFit) {
  const TensorType image{DType::u8, {28, 28, 1}};
  EXPECT_NO_THROW(check_augment({.crop = 27, .cutout = 28}, image));
  EXPECT_THROW(check_augment({.crop = 28}, image), UserError);
  EXPECT_THROW(check_augment({.cutout = 29}, image), UserError);
  EXPECT_THROW(check_augment({.rotate = 181}, image), UserError);
  EXPECT_THROW(check_augment({.flip = true}, {DType::i32, {16}}), UserError);
  EXPECT_NO_THROW(check_augment({}, {DType::i32, {16}}));
}

}  // namespace
}  // namespace lathe::data
