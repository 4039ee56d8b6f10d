#include "ops/pixel_shuffle.h"

#include "base/checked.h"
#include "ops/reshape.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

// The square of the factor, of images.
int64_t check_shuffle(const char* op, const TensorType& x, int64_t factor) {
  LATHE_USER_CHECK(x.shape.ndim() == 4, "{}: expected images [N, H, W, C], got {}", op, to_string(x));
  LATHE_USER_CHECK(factor >= 1, "{}: factor {}", op, factor);
  return checked_mul(factor, factor, op);
}

struct PixelShuffle {
  using Params = PixelShuffleParams;
  static constexpr OpInfo info{
      .name = "pixel_shuffle", .doc = "groups of factor^2 channels of NHWC images to pixels", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    const int64_t squared = check_shuffle("pixel_shuffle", x[0], p.factor);
    const Shape& s = x[0].shape;
    LATHE_USER_CHECK(s[3] % squared == 0, "pixel_shuffle: {} channels in groups of {}", s[3], squared);
    return {{x[0].dtype,
             {s[0], checked_mul(s[1], p.factor, "pixel_shuffle"), checked_mul(s[2], p.factor, "pixel_shuffle"),
              s[3] / squared}}};
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Shape s = x[0].shape();
    const int64_t r = p.factor, channels = s[3] / (r * r);
    const Value split = reshape(x[0], {s[0], s[1], s[2], channels, r, r});
    return {reshape(transpose(split, {0, 1, 4, 2, 5, 3}), {s[0], s[1] * r, s[2] * r, channels})};
  }
  static Values vjp(const Vjp& v, const Params& p) { return {pixel_unshuffle(v.dy(), p.factor)}; }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape &in = x[0].shape(), &out = y[0].shape();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const int64_t c = i % out[3], w = i / out[3] % out[2], row = i / out[3] / out[2];  // row: n and h
      const int64_t from = c * p.factor * p.factor + row % p.factor * p.factor + w % p.factor;
      y[0][i] = x[0][(row / p.factor * in[2] + w / p.factor) * in[3] + from];
    }
  }
  static std::vector<Sample> samples() { return {{"image", {{{DType::f32, {2, 3, 2, 8}}}}, make_params(Params{2})}}; }
};

struct PixelUnshuffle {
  using Params = PixelShuffleParams;
  static constexpr OpInfo info{
      .name = "pixel_unshuffle", .doc = "squares of factor^2 pixels of NHWC images to channels", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    const int64_t squared = check_shuffle("pixel_unshuffle", x[0], p.factor);
    const Shape& s = x[0].shape;
    LATHE_USER_CHECK(s[1] % p.factor == 0 && s[2] % p.factor == 0, "pixel_unshuffle: {} by {} pixels in squares of {}",
                     s[1], s[2], p.factor);
    return {{x[0].dtype, {s[0], s[1] / p.factor, s[2] / p.factor, checked_mul(s[3], squared, "pixel_unshuffle")}}};
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Shape s = x[0].shape();
    const int64_t r = p.factor;
    const Value split = reshape(x[0], {s[0], s[1] / r, r, s[2] / r, r, s[3]});
    return {reshape(transpose(split, {0, 1, 3, 5, 2, 4}), {s[0], s[1] / r, s[2] / r, s[3] * r * r})};
  }
  static Values vjp(const Vjp& v, const Params& p) { return {pixel_shuffle(v.dy(), p.factor)}; }
  static std::vector<Sample> samples() { return {{"image", {{{DType::f32, {2, 4, 6, 2}}}}, make_params(Params{2})}}; }
};

}  // namespace

constinit const OpDef pixel_shuffle_op = make_op<PixelShuffle>();
constinit const OpDef pixel_unshuffle_op = make_op<PixelUnshuffle>();

Value pixel_shuffle(Value x, int64_t factor) {
  return x.builder().add1(pixel_shuffle_op, std::span(&x, 1), PixelShuffleParams{factor});
}
Value pixel_unshuffle(Value x, int64_t factor) {
  return x.builder().add1(pixel_unshuffle_op, std::span(&x, 1), PixelShuffleParams{factor});
}

}  // namespace lathe
