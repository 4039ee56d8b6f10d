#include "ops/leaky_relu.h"

#include "ops/elementwise.h"

namespace lathe {
namespace {

Value leaky(Value x, Value slope) { return select(less(constant_like(x, 0), x), x, x * slope); }

struct LeakyRelu {
  using Params = LeakyReluParams;
  static constexpr OpInfo info{.name = "leaky_relu", .doc = "x > 0 ? x : slope * x", .inputs = 1};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    LATHE_USER_CHECK(is_float(x[0].dtype()), "leaky_relu: expected floats, got {}", to_string(x[0].type()));
    return {leaky(x[0], constant_like(x[0], p.slope))};
  }
  static std::vector<Sample> samples() {
    return {{"matrix", {{{DType::f32, {5, 7}}, -2, 2, 0.1}}, make_params(Params{0.1})}};
  }
};

struct Prelu {
  using Params = NoParams;
  static constexpr OpInfo info{
      .name = "prelu", .doc = "x > 0 ? x : slope * x, with one slope per channel", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params&) {
    const TensorType t = x[0].type();
    LATHE_USER_CHECK(
        is_float(t.dtype) && t.shape.ndim() >= 1 && x[1].type() == (TensorType{t.dtype, {t.shape.dim(-1)}}),
        "prelu: expected floats [..., channels] and a slope for each channel, got {} and {}", to_string(t),
        to_string(x[1].type()));
    return {leaky(x[0], x[1])};
  }
  static std::vector<Sample> samples() {
    return {{"channels", {{{DType::f32, {3, 4, 5}}, -2, 2, 0.1}, {{DType::f32, {5}}}}, make_params(Params{})}};
  }
};

}  // namespace

constinit const OpDef leaky_relu_op = make_op<LeakyRelu>();
constinit const OpDef prelu_op = make_op<Prelu>();

Value leaky_relu(Value x, double slope) {
  return x.builder().add1(leaky_relu_op, std::span(&x, 1), LeakyReluParams{slope});
}

Value prelu(Value x, Value slope) {
  const Value in[] = {x, slope};
  return x.builder().add1(prelu_op, in, NoParams{});
}

}  // namespace lathe
