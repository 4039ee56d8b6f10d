#include "ops/tile.h"

#include "base/checked.h"
#include "ops/broadcast.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

Shape grown(const char* op, const Shape& s, int axis, int64_t times) {
  LATHE_USER_CHECK(times >= 0, "{}: {} repeats", op, times);
  return s.with_dim(axis, checked_mul(s[axis], times, op));
}

// Every run of `length` elements `times` times, one run after the other.
Value runs(Value x, int64_t length, int64_t times, const Shape& out) {
  const int64_t count = length > 0 ? x.type().numel() / length : 0;
  return reshape(broadcast_to(reshape(x, {count, 1, length}), {count, times, length}), out);
}

struct Tile {
  using Params = TileParams;
  static constexpr OpInfo info{
      .name = "tile", .doc = "the tensor several times over along each axis", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    Shape s = x[0].shape;
    LATHE_USER_CHECK(static_cast<int>(p.repeats.size()) == s.ndim(), "tile: {} needs {} repeats, got {}", to_string(s),
                     s.ndim(), p.repeats.size());
    for (int i = 0; i < s.ndim(); ++i) s = grown("tile", s, i, p.repeats[static_cast<size_t>(i)]);
    return {{x[0].dtype, s}};
  }

  static Values expand(Builder&, ArgValues x, const Params& p) {
    Value y = x[0];
    for (int i = 0; i < x[0].ndim(); ++i) {
      const Shape s = y.shape(), out = grown("tile", s, i, p.repeats[static_cast<size_t>(i)]);
      y = runs(y, s[i] * s.strides()[static_cast<size_t>(i)], p.repeats[static_cast<size_t>(i)], out);
    }
    return {y};
  }

  static void reference(RefOuts y, RefIns x, const Params&) {
    const Shape &s = x[0].shape(), &out = y[0].shape();
    const Ints from = s.strides(), to = out.strides();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < to.size(); ++d)
        at += i / to[d] % out[static_cast<int>(d)] % s[static_cast<int>(d)] * from[d];
      y[0][i] = x[0][at];
    }
  }

  static std::vector<Sample> samples() {
    return {{"matrix", {{{DType::f32, {2, 3}}}}, make_params(Params{{2, 3}})},
            {"i32", {{{DType::i32, {2, 2, 3}}, -9, 9}}, make_params(Params{{1, 2, 1}})}};
  }
};

struct Repeat {
  using Params = RepeatParams;
  static constexpr OpInfo info{
      .name = "repeat", .doc = "each element several times along an axis", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(p.axis >= 0 && p.axis < x[0].shape.ndim(), "repeat: axis {} is out of range for {}", p.axis,
                     to_string(x[0].shape));
    return {{x[0].dtype, grown("repeat", x[0].shape, static_cast<int>(p.axis), p.times)}};
  }

  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Shape s = x[0].shape();
    return {runs(x[0], s.strides()[static_cast<size_t>(p.axis)], p.times,
                 grown("repeat", s, static_cast<int>(p.axis), p.times))};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int64_t inner = x[0].shape().strides()[static_cast<size_t>(p.axis)];
    for (int64_t i = 0; i < y[0].numel(); ++i) y[0][i] = x[0][i / (inner * p.times) * inner + i % inner];
  }

  static std::vector<Sample> samples() {
    return {{"middle", {{{DType::f32, {2, 3, 2}}}}, make_params(Params{1, 3})},
            {"last", {{{DType::f32, {2, 3}}}}, make_params(Params{1, 2})}};
  }
};

}  // namespace

constinit const OpDef tile_op = make_op<Tile>();
constinit const OpDef repeat_op = make_op<Repeat>();

Value tile(Value x, Ints repeats) {
  return x.builder().add1(tile_op, std::span(&x, 1), TileParams{std::move(repeats)});
}
Value repeat(Value x, int axis, int64_t times) {
  return x.builder().add1(repeat_op, std::span(&x, 1), RepeatParams{normalize_axis(axis, x.ndim(), "repeat"), times});
}

}  // namespace lathe
