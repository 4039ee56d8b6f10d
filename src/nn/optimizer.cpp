#include "nn/optimizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "nn/optimizers/rules.h"
#include "ops/cast.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

const OptimizerRule& rule_of(const std::string& name) {
  const OptimizerRule* rule = find_optimizer(name);
  LATHE_USER_CHECK(rule, "optimizer.name: expected one of {}, got \"{}\"", fmt::join(kOptimizerNames, ", "), name);
  return *rule;
}

}  // namespace

const OptimizerRule* find_optimizer(std::string_view name) {
  const auto* found = std::ranges::find(kOptimizerRules, name, &OptimizerRule::name);
  return found == std::end(kOptimizerRules) ? nullptr : found;
}

Optimizer::Optimizer(Builder& b, const OptimizerConfig& config, std::vector<StateSpec> params)
    : b_(b), config_(config), rule_(rule_of(config.name)), params_(std::move(params)) {
  if (rule_.counts)
    count_ = new_state({"optimizer.step", {DType::i32, {}}, InputKind::optimizer, Init::constant(0), {}, {}});
  if (config.lookahead > 0) lookahead_ = b.input({DType::f32, {}}, InputKind::step, "lookahead");
}

Value Optimizer::new_state(StateSpec spec) {
  const Value v = b_.input(spec.type, InputKind::optimizer, spec.name);
  specs_.push_back(std::move(spec));
  return v;
}

Value Optimizer::update(size_t i, Value p, Value g, Value lr, Value accept, bool table) {
  const StateSpec& spec = params_[i];
  const ParamGroup* group = find_group(config_.groups, spec.name);
  ParamUpdate u(*this, spec, accept);
  u.p = p;
  u.g = g;
  u.lr = group && group->lr_scale != 1 ? lr * group->lr_scale : lr;
  if (count_.valid()) u.t = u.shared("step", 1, count_, [](double one, Value n) { return cast(n, DType::f32) + one; });
  u.decay = p.ndim() >= 2 ? config_.weight_decay : 0;
  if (group && group->weight_decay) u.decay = *group->weight_decay;
  u.table = table;
  Value now = rule_.build(u);
  if (lookahead_.valid()) {
    // Slow weights (Zhang et al., 2019): every few steps they go part of the way, and the fast ones start again there.
    const Value slow = u.copy_of_first_value("slow");
    const Value moved = slow + (now - slow) * lookahead_;
    now = select(greater(lookahead_, constant_like(lookahead_, 0)), moved, now);
    u.set(slow, moved);
  }
  return u.set(p, now);
}

void Optimizer::finish(Value accept) {
  if (count_.valid()) b_.update(count_, count_ + cast(accept, DType::i32));
}

}  // namespace lathe
