#include "ops/clamp.h"

#include "ops/elementwise.h"

namespace lathe {
namespace {

struct Clamp {
  using Params = ClampParams;
  static constexpr OpInfo info{.name = "clamp", .doc = "x within [lo, hi]", .inputs = 1, .traits = kExact};

  static Values expand(Builder&, ArgValues x, const Params& p) {
    LATHE_USER_CHECK(p.lo <= p.hi, "clamp: lo {} is not below hi {}", p.lo, p.hi);
    return {minimum(maximum(x[0], constant_like(x[0], p.lo)), constant_like(x[0], p.hi))};
  }

  // The ends are within, as in PyTorch. Of x alone, so that nothing else is kept for it.
  static Values vjp(const Vjp& v, const Params& p) {
    const Value x = v.x[0], above = binary("ge", x, constant_like(x, p.lo)),
                below = binary("le", x, constant_like(x, p.hi));
    return {select(logical_and(above, below), v.dy(), constant_like(v.dy(), 0))};
  }

  static std::vector<Sample> samples() {
    return {{"matrix", {{{DType::f32, {5, 7}}, -2, 2}}, make_params(Params{-0.5, 1})},
            {"i32", {{{DType::i32, {9}}, -9, 9}}, make_params(Params{-3, 4})}};
  }
};

}  // namespace

constinit const OpDef clamp_op = make_op<Clamp>();

Value clamp(Value x, double lo, double hi) { return x.builder().add1(clamp_op, std::span(&x, 1), ClampParams{lo, hi}); }

}  // namespace lathe
