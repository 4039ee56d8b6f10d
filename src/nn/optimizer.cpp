#include "nn/optimizer.h"

#include <cmath>

#include "ops/cast.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

// 1 - beta^t without cancellation: -expm1(z) = 2 r / (1 + r) with r = tanh(-z / 2), z = t log(beta).
Value one_minus_power(double beta, Value t) {
  const Value r = tanh(t * (-0.5 * std::log(beta)));
  return r * 2.0 / (r + 1.0);
}

}  // namespace

Optimizer::Optimizer(Builder& b, const OptimizerConfig& config, const std::vector<StateSpec>& params)
    : b_(b), config_(config) {
  const bool adam = config.name == "adam" || config.name == "adamw";
  LATHE_USER_CHECK(adam || config.name == "sgd", "optimizer.name: expected sgd, adam or adamw, got \"{}\"",
                   config.name);
  if (adam) count_ = new_state("optimizer.step", {DType::i32, {}});
  for (const StateSpec& p : params) {
    Values moments;
    if (adam) {
      moments.push_back(new_state(p.name + ".exp_avg", p.type));
      moments.push_back(new_state(p.name + ".exp_avg_sq", p.type));
    } else if (config.momentum > 0) {
      moments.push_back(new_state(p.name + ".momentum_buffer", p.type));
    }
    for (size_t k = specs_.size() - moments.size(); k < specs_.size(); ++k) specs_[k].file = p.file;
    moments_.push_back(std::move(moments));
  }
}

Value Optimizer::new_state(const std::string& name, const TensorType& type) {
  specs_.push_back({name, type, InputKind::optimizer, Init::constant(0), {}});
  return b_.input(type, InputKind::optimizer, name);
}

void Optimizer::update(size_t i, Value p, Value g, Value lr, Value accept) {
  const auto set = [&](Value state, Value now) { b_.update(state, select(accept, now, state)); };
  const double decay = p.ndim() >= 2 ? config_.weight_decay : 0;
  Value base = p;
  if (decay > 0) base = p * (1.0 - lr * decay);
  if (count_.valid()) {
    const Value t = cast(count_, DType::f32) + 1.0;
    const Value m = moments_[i][0] * config_.beta1 + g * (1 - config_.beta1);
    const Value v = moments_[i][1] * config_.beta2 + square(g) * (1 - config_.beta2);
    const Value rate = lr / one_minus_power(config_.beta1, t);
    const Value root = rsqrt(one_minus_power(config_.beta2, t));
    set(p, base - rate * m / (sqrt(v) * root + config_.eps));
    set(moments_[i][0], m);
    set(moments_[i][1], v);
    return;
  }
  Value direction = g;
  if (config_.momentum > 0) {
    const Value m = moments_[i][0] * config_.momentum + g;
    direction = config_.nesterov ? g + m * config_.momentum : m;
    set(moments_[i][0], m);
  }
  set(p, base - lr * direction);
}

void Optimizer::finish(Value accept) {
  if (count_.valid()) b_.update(count_, count_ + cast(accept, DType::i32));
}

}  // namespace lathe
