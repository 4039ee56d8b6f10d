#include "ops/elu.h"

#include "ops/elementwise.h"

namespace lathe {
namespace {

struct Elu {
  using Params = EluParams;
  static constexpr OpInfo info{.name = "elu", .doc = "x > 0 ? x : alpha * (exp(x) - 1)", .inputs = 1};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value zero = constant_like(x[0], 0);
    // The exponential stays finite where it is not selected: 0 times infinity would reach the gradient.
    const Value above = less(zero, x[0]);
    return {select(above, x[0], expm1(select(above, zero, x[0])) * p.alpha)};
  }
  static std::vector<Sample> samples() {
    return {{"matrix", {{{DType::f32, {5, 7}}, -2, 2, 0.1}}, make_params(Params{0.7})}};
  }
};

}  // namespace

constinit const OpDef elu_op = make_op<Elu>();

Value elu(Value x, double alpha) { return x.builder().add1(elu_op, std::span(&x, 1), EluParams{alpha}); }

}  // namespace lathe
