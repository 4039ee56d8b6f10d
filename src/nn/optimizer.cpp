#include "nn/optimizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/name_hash.h"
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

// Recipes have narrower ranges (recipe/recipe_keys.cpp); here is what no rule can work with.
void check_numbers(const OptimizerRule& rule, OptimizerConfig c) {
  const auto check = [](std::string_view name, double value) {
    LATHE_USER_CHECK(std::isfinite(value) && value >= 0, "optimizer.{}: expected a finite number from 0, got {}", name,
                     value);
  };
  check("lr", c.lr);
  check("weight_decay", c.weight_decay);
  for_each_key(rule.keys, c, [&](std::string_view name, const auto& value, const auto& key) {
    if (key) check(name, static_cast<double>(value));
  });
}

// What makes an optimizer another one: its rule, what the rule reads, and the parameters, as a hash of their names. The
// learning rate is an input, and groups scale it.
std::string identity(const OptimizerRule& rule, OptimizerConfig c, const std::vector<StateSpec>& params) {
  std::string text(rule.name);
  for_each_key(rule.keys, c, [&](std::string_view name, const auto& value, const auto& key) {
    if (key) text += fmt::format(" {}={}", name, value);
  });
  if (c.weight_decay != 0) text += fmt::format(" weight_decay={}", c.weight_decay);
  uint32_t names = name_hash("");
  for (const StateSpec& s : params) names = name_hash("\n", name_hash(s.name, names));
  return fmt::format("{} of {} parameters {:08x}", text, params.size(), names);
}

}  // namespace

const OptimizerRule* find_optimizer(std::string_view name) {
  const auto* found = std::ranges::find(kOptimizerRules, name, &OptimizerRule::name);
  return found == std::end(kOptimizerRules) ? nullptr : found;
}

Optimizer::Optimizer(Builder& b, const OptimizerConfig& config, std::vector<StateSpec> params, std::string scope)
    : b_(b),
      config_(config),
      rule_(rule_of(config.name)),
      params_(std::move(params)),
      scope_(scope.empty() ? "" : scope + "."),
      owner_(identity(rule_, config_, params_)) {
  check_numbers(rule_, config_);
  if (rule_.counts && !params_.empty()) {
    count_ = new_state({scope_ + "optimizer.step",
                        {DType::i32, {}},
                        InputKind::optimizer,
                        Init::constant(0),
                        {},
                        {},
                        params_[0].name});
  }
}

Value Optimizer::new_state(StateSpec spec) {
  spec.gated = true;
  spec.saved_in = StateFile::optimizer;
  spec.owner = owner_;
  const Value v = b_.input(spec.type, InputKind::optimizer, spec.name);
  specs_.add(std::move(spec));
  return v;
}

Value Optimizer::update(size_t i, Value p, Value g, Value lr, bool table) {
  const StateSpec& spec = params_[i];
  const ParamGroup* group = find_group(config_.groups, spec.name);
  ParamUpdate u(*this, spec);
  u.p = p;
  u.g = g;
  u.lr = group && group->lr_scale != 1 ? lr * group->lr_scale : lr;
  if (count_.valid()) u.t = u.shared("step", 1, count_, [](double one, Value n) { return cast(n, DType::f32) + one; });
  u.decay = p.ndim() >= 2 ? config_.weight_decay : 0;
  if (group && group->weight_decay) u.decay = *group->weight_decay;
  u.table = table;
  const Value now = rule_.build(u);
  u.set(p, now);
  return now;
}

void Optimizer::finish() {
  if (count_.valid()) b_.update(count_, count_ + constant_like(count_, 1));
}

}  // namespace lathe
