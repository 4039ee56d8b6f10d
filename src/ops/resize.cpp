#include "ops/resize.h"

#include <algorithm>
#include <cmath>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/reshape.h"
#include "ops/take.h"
#include "ops/tile.h"

namespace lathe {
namespace {

constexpr int64_t kMostPixels = int64_t{1} << 24;  // of an axis: positions are exact in f32

Types infer_resize(const char* op, const TensorType& x, int64_t h, int64_t w) {
  LATHE_USER_CHECK(is_float(x.dtype) && x.shape.ndim() == 4, "{}: expected float images [N, H, W, C], got {}", op,
                   to_string(x));
  for (int64_t n : {x.shape[1], x.shape[2], h, w})
    LATHE_USER_CHECK(n >= 1 && n < kMostPixels, "{}: an axis of {} pixels", op, n);
  return {{x.dtype, {x.shape[0], h, w, x.shape[3]}}};
}

Value nearest_axis(Value x, int axis, int64_t size) {
  const int64_t n = x.dim(axis);
  if (n == size) return x;
  if (size % n == 0) return repeat(x, axis, size / n);
  // floor(i n / size): the half keeps the quotient away from whole numbers by more than f32 rounds, up to this size.
  const DType t = n * size <= int64_t{1} << 22 ? DType::f32 : DType::f64;
  const Value i = iota(x.builder(), {t, {size}}, 0);
  return take(x, cast(floor((i * static_cast<double>(n) + 0.5) / static_cast<double>(size)), DType::i32), axis);
}

// Where output pixel i lies between the pixels of the input.
struct Position {
  int64_t low, high;
  double share;  // of high
};
Position position(int64_t i, int64_t n, int64_t size, bool align_corners) {
  double at = 0;
  if (align_corners)
    at = size > 1 ? static_cast<double>(i) * static_cast<double>(n - 1) / static_cast<double>(size - 1) : 0;
  else
    at = std::max(0.0, (static_cast<double>(i) + 0.5) * static_cast<double>(n) / static_cast<double>(size) - 0.5);
  const int64_t low = std::min(static_cast<int64_t>(at), n - 1);
  return {low, std::min(low + 1, n - 1), at - static_cast<double>(low)};
}

// The same, as nodes, in the type of x.
Value bilinear_axis(Value x, int axis, int64_t size, bool align_corners) {
  const int64_t n = x.dim(axis);
  if (n == size) return x;
  Builder& b = x.builder();
  const double out = static_cast<double>(size), in = static_cast<double>(n);
  const Value i = iota(b, {x.dtype(), {size}}, 0);
  Value at;
  if (align_corners)
    at = i * (size > 1 ? (in - 1) / (out - 1) : 0.0);
  else
    at = maximum((i + 0.5) * (in / out) - 0.5, constant_like(i, 0));
  const Value low = minimum(floor(at), constant_like(at, in - 1));
  const Value high = minimum(low + 1.0, constant_like(at, in - 1));
  Ints column(static_cast<size_t>(x.ndim()), 1);
  column[static_cast<size_t>(axis)] = size;
  const Value share = reshape(at - low, Shape(column));
  const Value first = take(x, cast(low, DType::i32), axis), second = take(x, cast(high, DType::i32), axis);
  return first + (second - first) * share;
}

struct ResizeNearest {
  using Params = ResizeNearestParams;
  static constexpr OpInfo info{
      .name = "resize_nearest", .doc = "NHWC images at another size, pixels repeated", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) { return infer_resize("resize_nearest", x[0], p.size_h, p.size_w); }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {nearest_axis(nearest_axis(x[0], 1, p.size_h), 2, p.size_w)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape &in = x[0].shape(), &out = y[0].shape();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const int64_t c = i % out[3], w = i / out[3] % out[2], h = i / out[3] / out[2] % out[1],
                    n = i / out[3] / out[2] / out[1];
      y[0][i] = x[0][((n * in[1] + h * in[1] / p.size_h) * in[2] + w * in[2] / p.size_w) * in[3] + c];
    }
  }
  static std::vector<Sample> samples() {
    return {{"double", {{{DType::f32, {2, 3, 2, 2}}}}, make_params(Params{6, 4})},
            {"odd", {{{DType::f32, {1, 4, 5, 2}}}}, make_params(Params{7, 3})}};
  }
};

struct ResizeBilinear {
  using Params = ResizeBilinearParams;
  static constexpr OpInfo info{
      .name = "resize_bilinear", .doc = "NHWC images at another size, interpolated", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) { return infer_resize("resize_bilinear", x[0], p.size_h, p.size_w); }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {bilinear_axis(bilinear_axis(x[0], 1, p.size_h, p.align_corners), 2, p.size_w, p.align_corners)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape &in = x[0].shape(), &out = y[0].shape();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const int64_t c = i % out[3], n = i / out[3] / out[2] / out[1];
      const Position h = position(i / out[3] / out[2] % out[1], in[1], p.size_h, p.align_corners),
                     w = position(i / out[3] % out[2], in[2], p.size_w, p.align_corners);
      const auto at = [&](int64_t r, int64_t col) { return x[0][((n * in[1] + r) * in[2] + col) * in[3] + c]; };
      y[0][i] = (1 - h.share) * ((1 - w.share) * at(h.low, w.low) + w.share * at(h.low, w.high)) +
                h.share * ((1 - w.share) * at(h.high, w.low) + w.share * at(h.high, w.high));
    }
  }
  static std::vector<Sample> samples() {
    return {{"larger", {{{DType::f32, {2, 3, 2, 2}}}}, make_params(Params{7, 4, false})},
            {"smaller", {{{DType::f32, {1, 7, 5, 2}}}}, make_params(Params{3, 4, false})},
            {"corners", {{{DType::f32, {1, 3, 4, 2}}}}, make_params(Params{5, 7, true})}};
  }
};

}  // namespace

constinit const OpDef resize_bilinear_op = make_op<ResizeBilinear>();
constinit const OpDef resize_nearest_op = make_op<ResizeNearest>();

Value resize_nearest(Value x, int64_t size_h, int64_t size_w) {
  return x.builder().add1(resize_nearest_op, std::span(&x, 1), ResizeNearestParams{size_h, size_w});
}
Value resize_bilinear(Value x, int64_t size_h, int64_t size_w, bool align_corners) {
  return x.builder().add1(resize_bilinear_op, std::span(&x, 1), ResizeBilinearParams{size_h, size_w, align_corners});
}

}  // namespace lathe
