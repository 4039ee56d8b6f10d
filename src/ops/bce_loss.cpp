#include "ops/bce_loss.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/mse_loss.h"

namespace lathe {
namespace {

// -log(p) is softplus(-x), and -log(1 - p) is that plus x.
Value binary_cross_entropy(Value x, Value t, double pos_weight) {
  const Value weight = pos_weight == 1 ? Value() : 1.0 + t * (pos_weight - 1);
  const Value miss = softplus(-x);
  return (1.0 - t) * x + (weight ? weight * miss : miss);
}

std::vector<Sample> binary_samples(ParamsPtr p) {
  return {{"matrix", {{{DType::f32, {5, 7}}, -4, 4}, {{DType::f32, {5, 7}}, 0, 1}}, std::move(p)}};
}

struct BceLoss {
  using Params = BceLossParams;
  static constexpr OpInfo info{
      .name = "bce_loss", .doc = "binary cross-entropy of each element from logits and targets in [0, 1]", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_same_floats("bce_loss", x);
    return {binary_cross_entropy(x[0], x[1], p.pos_weight)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const double t = x[1][i], miss = std::log1p(std::exp(-std::abs(x[0][i]))) + std::max(-x[0][i], 0.0);
      y[0][i] = p.pos_weight * t * miss + (1 - t) * (x[0][i] + miss);
    }
  }
  static std::vector<Sample> samples() {
    auto out = binary_samples(make_params(Params{2.5}));
    out.push_back({"plain", {{{DType::f32, {6}}, -4, 4}, {{DType::f32, {6}}, 0, 1}}, make_params(Params{})});
    return out;
  }
};

struct FocalLoss {
  using Params = FocalLossParams;
  static constexpr OpInfo info{
      .name = "focal_loss", .doc = "bce_loss scaled by the (1 - p)^gamma of the target's p", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_same_floats("focal_loss", x);
    LATHE_USER_CHECK(p.gamma >= 0 && std::isfinite(p.gamma) && p.alpha >= 0 && p.alpha <= 1,
                     "focal_loss: expected gamma >= 0 and alpha in [0, 1], got {} and {}", p.gamma, p.alpha);
    const Value q = sigmoid(x[0]), t = x[1], alpha = (1.0 - p.alpha) + t * (2 * p.alpha - 1);
    const Value loss = alpha * binary_cross_entropy(x[0], t, 1);
    if (p.gamma == 0) return {loss};
    // Not 0, where powers below 1 have no slope.
    const Value missed = maximum(q + t - q * t * 2.0, constant_like(q, 1e-6));
    return {loss * pow(missed, constant_like(missed, p.gamma))};
  }
  static std::vector<Sample> samples() { return binary_samples(make_params(Params{0.3, 1.5})); }
};

Value add_binary_loss(const OpDef& op, Value x, Value target, ParamsPtr p) {
  const Value in[] = {x, target};
  return x.builder().add(op, in, std::move(p))[0];
}

}  // namespace

constinit const OpDef bce_loss_op = make_op<BceLoss>();
constinit const OpDef focal_loss_op = make_op<FocalLoss>();

Value bce_loss(Value logits, Value target, double pos_weight) {
  return add_binary_loss(bce_loss_op, logits, target, make_params(BceLossParams{pos_weight}));
}
Value focal_loss(Value logits, Value target, double alpha, double gamma) {
  return add_binary_loss(focal_loss_op, logits, target, make_params(FocalLossParams{alpha, gamma}));
}

}  // namespace lathe
