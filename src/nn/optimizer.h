// Optimizers as graph fragments: given a parameter and its gradient, build the new parameter and the new moments. The
// rules stand in one table (optimizers/rules.h), one file per family in optimizers/. State that they make is gated: a
// refused step leaves it as it was (passes/techniques/gate.h).
//
// Weight decay is decoupled from the gradient (Loshchilov and Hutter, 2019) or added to it (L2), as the rule's row
// says, and skips tensors of fewer than two axes (biases, norms) unless a group names them.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "nn/param_groups.h"

namespace lathe {

// The section [optimizer] of a recipe. Its defaults depend on the name: the rule's row has them.
struct OptimizerConfig {
  std::string name = "sgd";
  double lr = 0.1;  // the peak: the schedule gives that of a step
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // adam and others: decays of the means, and what is added to divisors
  double weight_decay = 0;
  bool centered = false;    // rmsprop
  double decay_rate = 0.8;  // adafactor: decay of the mean square at step t is 1 - t^-decay_rate
  double trust = 1e-3;      // lars
  Tables groups = {};       // ParamGroup
  friend bool operator==(const OptimizerConfig&, const OptimizerConfig&) = default;
};

struct OptimizerRule;

// The state of one optimizer and its updates: state inputs of the graph under construction.
class Optimizer {
 public:
  // `params`: those that are trained, in the order of the indices below. `scope` stands in the names of all state that
  // the optimizer makes ("d.optimizer.step", "fc.weight.d.exp_avg"): several optimizers of one set need several scopes,
  // and StateTable::add refuses state of two. UserError: no such rule, or numbers that are negative or not finite.
  Optimizer(Builder&, const OptimizerConfig&, std::vector<StateSpec> params, std::string scope = "");

  // Appends the update of parameter i and returns its value after the step. `table`: rows of the parameter are looked
  // up, an embedding.
  Value update(size_t i, Value param, Value gradient, Value lr, bool table = false);
  void finish();  // appends the update of what is shared by all parameters

  const StateTable& specs() const { return specs_; }  // complete when all updates were appended

 private:
  friend class ParamUpdate;
  Value new_state(StateSpec);

  Builder& b_;
  OptimizerConfig config_;
  const OptimizerRule& rule_;
  std::vector<StateSpec> params_;
  std::string scope_, owner_;  // "", or ending in "."; StateSpec::owner
  StateTable specs_;
  Value count_;  // accepted steps, before this one
  // Scalars that many parameters need, by name, constant and argument: built once, for cse would have to find them
  // again in every parameter's update.
  std::map<std::tuple<std::string_view, double, ValueId>, Value> scalars_;
};

}  // namespace lathe
