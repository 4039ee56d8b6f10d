#include "ops/mse_loss.h"

#include <cmath>

#include "ops/elementwise.h"

namespace lathe {

void check_same_floats(const char* op, ArgValues x) {
  for (const Value& v : x)
    LATHE_USER_CHECK(is_float(v.dtype()) && v.type() == x[0].type(), "{}: expected floats of one type, got {} and {}",
                     op, to_string(x[0].type()), to_string(v.type()));
}

namespace {

// The difference is never 0, where |x| has its kink.
std::vector<Sample> regression_samples(ParamsPtr p) {
  return {{"matrix", {{{DType::f32, {5, 7}}, -1, 1}, {{DType::f32, {5, 7}}, 1.1, 3}}, std::move(p)}};
}

struct MseLoss {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "mse_loss", .doc = "(x - target)^2 of each element", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params&) {
    check_same_floats("mse_loss", x);
    return {square(x[0] - x[1])};
  }
  static std::vector<Sample> samples() { return regression_samples(make_params(Params{})); }
};

struct L1Loss {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "l1_loss", .doc = "|x - target| of each element", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params&) {
    check_same_floats("l1_loss", x);
    return {abs(x[0] - x[1])};
  }
  static std::vector<Sample> samples() { return regression_samples(make_params(Params{})); }
};

struct HuberLoss {
  using Params = HuberLossParams;
  static constexpr OpInfo info{
      .name = "huber_loss", .doc = "d^2 / 2 where d = |x - target| <= delta, else delta (d - delta / 2)", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_same_floats("huber_loss", x);
    LATHE_USER_CHECK(p.delta > 0 && std::isfinite(p.delta), "huber_loss: delta {} is not positive", p.delta);
    const Value distance = abs(x[0] - x[1]), near = minimum(distance, constant_like(distance, p.delta));
    return {near * (distance - near * 0.5)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const double d = std::abs(x[0][i] - x[1][i]);
      y[0][i] = d <= p.delta ? d * d / 2 : p.delta * (d - p.delta / 2);
    }
  }
  static std::vector<Sample> samples() { return regression_samples(make_params(Params{1.5})); }
};

Value add_loss(const OpDef& op, Value x, Value target, ParamsPtr p) {
  const Value in[] = {x, target};
  return x.builder().add(op, in, std::move(p))[0];
}

}  // namespace

constinit const OpDef mse_loss_op = make_op<MseLoss>();
constinit const OpDef l1_loss_op = make_op<L1Loss>();
constinit const OpDef huber_loss_op = make_op<HuberLoss>();

Value mse_loss(Value x, Value target) { return add_loss(mse_loss_op, x, target, make_params(NoParams{})); }
Value l1_loss(Value x, Value target) { return add_loss(l1_loss_op, x, target, make_params(NoParams{})); }
Value huber_loss(Value x, Value target, double delta) {
  return add_loss(huber_loss_op, x, target, make_params(HuberLossParams{delta}));
}

}  // namespace lathe
