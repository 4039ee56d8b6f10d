#include "ops/rotary.h"

#include <algorithm>
#include <cmath>

#include "ops/cast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

struct Rotary {
  using Params = RotaryParams;
  static constexpr OpInfo info{
      .name = "rotary", .doc = "turns pairs of channels by angles that grow with the position", .inputs = 2};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape& s = x[0].shape;
    LATHE_USER_CHECK(is_float(x[0].dtype) && s.ndim() >= 2 && s.dim(-1) % 2 == 0,
                     "rotary: expected floats [..., length, width] with an even width, got {}", to_string(x[0]));
    LATHE_USER_CHECK((x[1].dtype == DType::i32 || x[1].dtype == DType::i64) && x[1].shape == Shape{s.dim(-2)},
                     "rotary: expected {} positions (i32 or i64), got {}", s.dim(-2), to_string(x[1]));
    LATHE_USER_CHECK(p.base > 0 && std::isfinite(p.base), "rotary: base {} is not positive", p.base);
    return {x[0]};
  }

  static Values expand(Builder& b, ArgValues in, const Params& p) {
    const Value x = in[0];
    const int64_t half = x.dim(-1) / 2;
    const double step = -std::log(p.base) / static_cast<double>(std::max<int64_t>(half, 1));
    const Value rate = exp(iota(b, {x.dtype(), {half}}, 0) * step);
    const Value angle = reshape(cast(in[1], x.dtype()), {x.dim(-2), 1}) * rate;
    const Value c = cos(angle), s = sin(angle);
    const Value first = slice_axis(x, x.ndim() - 1, 0, half), second = slice_axis(x, x.ndim() - 1, half, half);
    const Value turned[] = {first * c - second * s, second * c + first * s};
    return {concat(turned, x.ndim() - 1)};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int64_t width = x[0].shape().dim(-1), half = width / 2, length = x[0].shape().dim(-2);
    for (int64_t row = 0; width > 0 && row < x[0].numel() / width; ++row)
      for (int64_t i = 0; i < half; ++i) {
        const double rate = std::pow(p.base, -static_cast<double>(i) / static_cast<double>(half));
        const double angle = x[1][row % length] * rate, c = std::cos(angle), s = std::sin(angle);
        const double a = x[0][row * width + i], b = x[0][row * width + half + i];
        y[0][row * width + i] = a * c - b * s;
        y[0][row * width + half + i] = b * c + a * s;
      }
  }

  static std::vector<Sample> samples() {
    return {{"heads", {{{DType::f32, {2, 2, 3, 6}}}, {{DType::i32, {3}}, 0, 9}}, make_params(Params{100})}};
  }
};

}  // namespace

constinit const OpDef rotary_op = make_op<Rotary>();

Value rotary(Value x, Value positions, double base) {
  const Value in[] = {x, positions};
  return x.builder().add1(rotary_op, in, RotaryParams{base});
}

}  // namespace lathe
