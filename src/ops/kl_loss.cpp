#include "ops/kl_loss.h"

#include "ops/elementwise.h"
#include "ops/mse_loss.h"

namespace lathe {
namespace {

struct KlLoss {
  using Params = KlLossParams;
  static constexpr OpInfo info{
      .name = "kl_loss", .doc = "t (log t - x) of each element, x being log-probabilities", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_same_floats("kl_loss", x);
    const Value t = x[1];
    if (p.log_target) return {exp(t) * (t - x[0])};
    const Value zero = constant_like(t, 0);
    const Value safe = select(less(zero, t), t, constant_like(t, 1));  // its logarithm is finite
    return {t * (log(safe) - x[0])};
  }
  static std::vector<Sample> samples() {
    return {{"matrix", {{{DType::f32, {5, 7}}, -4, -0.1}, {{DType::f32, {5, 7}}, 0.01, 1}}, make_params(Params{false})},
            {"log", {{{DType::f32, {6}}, -4, -0.1}, {{DType::f32, {6}}, -4, -0.1}}, make_params(Params{true})}};
  }
};

}  // namespace

constinit const OpDef kl_loss_op = make_op<KlLoss>();

Value kl_loss(Value log_probabilities, Value target, bool log_target) {
  const Value in[] = {log_probabilities, target};
  return target.builder().add1(kl_loss_op, in, KlLossParams{log_target});
}

}  // namespace lathe
