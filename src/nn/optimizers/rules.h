// The rules of optimizers. A new one is a function of ParamUpdate in a file of this folder, its declaration and its row
// here: recipes, checkpoints, tests and groups follow from the row.
#pragma once

#include <array>
#include <optional>
#include <string_view>

#include "nn/optimizer.h"

namespace lathe {

// One parameter while its update is built.
class ParamUpdate {
 public:
  const OptimizerConfig& c;
  const StateSpec& spec;
  Value p;             // before the step
  Value g;             // its gradient
  Value lr;            // scalar, with the group's scale
  Value t;             // scalar: which accepted step this is, from 1; only for rules that count
  double decay = 0;    // of this parameter
  bool table = false;  // an embedding

  ParamUpdate(Optimizer& o, const StateSpec& s) : c(o.config_), spec(s), o_(o) {}

  // State of this parameter, of its shape or (in memory) of the layout's view; starts at zero.
  Value state(std::string_view suffix);
  Value state(std::string_view suffix, const FileLayout&);
  void set(Value state, Value now);  // the state after the step

  // build(c, x), a scalar, which is the same for all parameters that ask for it by this name, a literal.
  Value shared(std::string_view name, double c, Value x, Value (*build)(double c, Value x));
  Value one_minus_power(double beta);  // 1 - beta^t without cancellation

  Value decayed();              // p (1 - lr decay): decoupled decay
  Value with_l2() const;        // g + decay p: decay as part of the gradient
  Value matrix(Value x) const;  // as [axis 0, all others]
  bool is_matrix() const { return p.ndim() >= 2; }

 private:
  std::string name_of(std::string_view suffix) const;

  Optimizer& o_;
};

Value l2_norm(Value x);  // scalar
// The step of Adam without the learning rate; keeps its moments. `g` may hold more than the gradient.
Value adam_direction(ParamUpdate&, Value g, bool scale_by_rate);

// Which keys a rule reads, with its defaults: what is absent has no effect.
struct OptimizerKeys {
  std::optional<double> momentum{}, beta1{}, beta2{}, eps{}, decay_rate{}, trust{};
  std::optional<bool> nesterov{}, centered{};
};
// f(name in recipes, member of the config, the rule's default or nothing) for each key.
template <class F>
void for_each_key(const OptimizerKeys& k, OptimizerConfig& c, F&& f) {
  f("momentum", c.momentum, k.momentum);
  f("nesterov", c.nesterov, k.nesterov);
  f("beta1", c.beta1, k.beta1);
  f("beta2", c.beta2, k.beta2);
  f("eps", c.eps, k.eps);
  f("centered", c.centered, k.centered);
  f("decay_rate", c.decay_rate, k.decay_rate);
  f("trust", c.trust, k.trust);
}

struct OptimizerRule {
  std::string_view name;
  std::string_view doc;
  Value (*build)(ParamUpdate&);  // sets the state, returns the parameter's new value
  bool counts;                   // reads ParamUpdate::t
  OptimizerKeys keys;
};

Value build_sgd(ParamUpdate&);
Value build_sgdw(ParamUpdate&);
Value build_adam(ParamUpdate&);
Value build_adamw(ParamUpdate&);
Value build_adamax(ParamUpdate&);
Value build_radam(ParamUpdate&);
Value build_rmsprop(ParamUpdate&);
Value build_adagrad(ParamUpdate&);
Value build_adafactor(ParamUpdate&);
Value build_lion(ParamUpdate&);
Value build_lars(ParamUpdate&);
Value build_lamb(ParamUpdate&);
Value build_muon(ParamUpdate&);

// Keys and defaults are PyTorch's where it has the optimizer.
inline constexpr OptimizerRule kOptimizerRules[] = {
    {"sgd",
     "gradient descent with momentum; decay is part of the gradient",
     build_sgd,
     false,
     {.momentum = 0.9, .nesterov = false}},
    {"sgdw", "the same, decay apart from the gradient", build_sgdw, false, {.momentum = 0.9, .nesterov = false}},
    {"adam",
     "moments of the gradient; decay is part of the gradient",
     build_adam,
     true,
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    {"adamw",
     "the same, decay apart from the gradient",
     build_adamw,
     true,
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    {"adamax",
     "Adam with the largest gradient in place of the mean square",
     build_adamax,
     true,
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    {"radam",
     "adam, whose first steps are momentum's until the mean square rests on enough gradients",
     build_radam,
     true,
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8}},
    {"rmsprop",
     "gradient over the root of its mean square, with momentum",
     build_rmsprop,
     false,
     {.momentum = 0.0, .beta2 = 0.99, .eps = 1e-8, .centered = false}},
    {"adagrad", "gradient over the root of its sum of squares", build_adagrad, false, {.eps = 1e-10}},
    {"adafactor", "mean squares kept as rows and columns: almost no state", build_adafactor, true, {.decay_rate = 0.8}},
    {"lion", "the sign of an average: one moment, steps of one size", build_lion, false, {.beta1 = 0.9, .beta2 = 0.99}},
    {"lars",
     "sgd, the step of each matrix in proportion to its norm: very large batches",
     build_lars,
     false,
     {.momentum = 0.9, .trust = 1e-3, .nesterov = false}},
    {"lamb",
     "adamw, the step of each matrix in proportion to its norm: very large batches",
     build_lamb,
     true,
     {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-6}},
    {"muon",
     "orthogonalised momentum for matrices, adamw for embeddings and vectors",
     build_muon,
     true,
     {.momentum = 0.95, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .nesterov = true}},
};

const OptimizerRule* find_optimizer(std::string_view name);  // or null

inline constexpr auto kOptimizerNames = [] {
  std::array<std::string_view, std::size(kOptimizerRules)> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = kOptimizerRules[i].name;
  return names;
}();

}  // namespace lathe
