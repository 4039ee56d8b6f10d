#include "ops/take.h"

#include <limits>

#include "ops/cast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

struct Take {
  using Params = TakeParams;
  static constexpr OpInfo info{.name = "take", .doc = "elements of an axis by index", .inputs = 2, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape &s = x[0].shape, &ids = x[1].shape;
    LATHE_USER_CHECK(x[1].dtype == DType::i32 || x[1].dtype == DType::i64, "take: expected i32 or i64 indices, got {}",
                     to_string(x[1]));
    LATHE_USER_CHECK(p.axis >= 0 && p.axis < s.ndim(), "take: axis {} is out of range for {}", p.axis, to_string(s));
    const int axis = static_cast<int>(p.axis);
    LATHE_USER_CHECK(s[axis] > 0 || ids.numel() == 0, "take: {} elements of an empty axis", ids.numel());
    Ints out(s.begin(), s.begin() + axis);
    out.insert(out.end(), ids.begin(), ids.end());
    out.insert(out.end(), s.begin() + axis + 1, s.end());
    return {{x[0].dtype, Shape(out)}};
  }

  // Rows of a matrix [outer * n, inner], by outer * n + index.
  static Values expand(Builder& b, ArgValues x, const Params& p) {
    const Shape s = x[0].shape();
    const int64_t n = s[static_cast<int>(p.axis)];
    int64_t outer = 1, inner = 1;
    for (int i = 0; i < p.axis; ++i) outer *= s[i];
    for (int i = static_cast<int>(p.axis) + 1; i < s.ndim(); ++i) inner *= s[i];
    const TensorType out = infer(std::vector{x[0].type(), x[1].type()}, p)[0];
    if (outer == 1) return {reshape(gather(reshape(x[0], {n, inner}), x[1]), out.shape)};
    const DType t = outer * n <= std::numeric_limits<int32_t>::max() ? x[1].dtype() : DType::i64;
    const Value starts = iota(b, {t, {outer, 1}}, 0) * static_cast<double>(n);
    const Value rows = starts + reshape(cast(x[1], t), {1, x[1].type().numel()});
    return {reshape(gather(reshape(x[0], {outer * n, inner}), rows), out.shape)};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape& s = x[0].shape();
    const int64_t n = s[static_cast<int>(p.axis)], inner = s.strides()[static_cast<size_t>(p.axis)],
                  count = x[1].numel();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const int64_t at = static_cast<int64_t>(x[1][i / inner % count]);
      LATHE_USER_CHECK(at >= 0 && at < n, "take: index {} is outside of [0, {})", at, n);
      y[0][i] = x[0][(i / inner / count * n + at) * inner + i % inner];
    }
  }

  static std::vector<Sample> samples() {
    return {{"middle", {{{DType::f32, {2, 4, 3}}}, {{DType::i32, {2, 2}}, 0, 3}}, make_params(Params{1})},
            {"first", {{{DType::f32, {4, 3}}}, {{DType::i64, {5}}, 0, 3}}, make_params(Params{0})}};
  }
};

struct Flip {
  using Params = FlipParams;
  static constexpr OpInfo info{.name = "flip", .doc = "axes the other way round", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    for (size_t i = 0; i < p.axes.size(); ++i)
      LATHE_USER_CHECK(p.axes[i] >= (i == 0 ? 0 : p.axes[i - 1] + 1) && p.axes[i] < x[0].shape.ndim(),
                       "flip: axes must ascend without repeats within {}", to_string(x[0].shape));
    return {x[0]};
  }

  static Values expand(Builder& b, ArgValues x, const Params& p) {
    Value y = x[0];
    for (int64_t a : p.axes) {
      const int64_t n = y.dim(static_cast<int>(a));
      const DType t = n <= std::numeric_limits<int32_t>::max() ? DType::i32 : DType::i64;
      y = take(y, static_cast<double>(n - 1) - iota(b, {t, {n}}, 0), static_cast<int>(a));
    }
    return {y};
  }

  static Values vjp(const Vjp& v, const Params& p) { return {flip(v.dy(), p.axes)}; }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape& s = x[0].shape();
    const Ints strides = s.strides();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      int64_t at = i;
      for (int64_t a : p.axes) {
        const int64_t n = s[static_cast<int>(a)], stride = strides[static_cast<size_t>(a)], k = i / stride % n;
        at += (n - 1 - 2 * k) * stride;
      }
      y[0][i] = x[0][at];
    }
  }

  static std::vector<Sample> samples() {
    return {{"both", {{{DType::f32, {3, 4}}}}, make_params(Params{{0, 1}})},
            {"i32", {{{DType::i32, {2, 3, 2}}, -9, 9}}, make_params(Params{{1}})}};
  }
};

struct Roll {
  using Params = RollParams;
  static constexpr OpInfo info{
      .name = "roll", .doc = "elements moved along an axis and round its end", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(p.axis >= 0 && p.axis < x[0].shape.ndim(), "roll: axis {} is out of range for {}", p.axis,
                     to_string(x[0].shape));
    return {x[0]};
  }

  static Values expand(Builder&, ArgValues x, const Params& p) {
    const int axis = static_cast<int>(p.axis);
    const int64_t n = x[0].dim(axis), by = n > 0 ? (p.shift % n + n) % n : 0;
    if (by == 0) return {x[0]};
    const Value parts[] = {slice_axis(x[0], axis, n - by, by), slice_axis(x[0], axis, 0, n - by)};
    return {concat(parts, axis)};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape& s = x[0].shape();
    const int64_t n = s[static_cast<int>(p.axis)], inner = s.strides()[static_cast<size_t>(p.axis)];
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const int64_t k = i / inner % n, from = ((k - p.shift % n) % n + n) % n;
      y[0][i] = x[0][i + (from - k) * inner];
    }
  }

  static std::vector<Sample> samples() {
    return {{"down", {{{DType::f32, {5, 3}}}}, make_params(Params{0, 2})},
            {"back", {{{DType::f32, {2, 4, 3}}}}, make_params(Params{1, -9})}};
  }
};

}  // namespace

constinit const OpDef take_op = make_op<Take>();
constinit const OpDef flip_op = make_op<Flip>();
constinit const OpDef roll_op = make_op<Roll>();

Value take(Value x, Value indices, int axis) {
  const Value in[] = {x, indices};
  return x.builder().add1(take_op, in, TakeParams{normalize_axis(axis, x.ndim(), "take")});
}
Value flip(Value x, Ints axes) {
  return x.builder().add1(flip_op, std::span(&x, 1), FlipParams{sorted_axes(std::move(axes), x.ndim(), "flip")});
}
Value roll(Value x, int axis, int64_t shift) {
  return x.builder().add1(roll_op, std::span(&x, 1), RollParams{normalize_axis(axis, x.ndim(), "roll"), shift});
}

}  // namespace lathe
