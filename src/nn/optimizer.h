// Optimizers as graph fragments: given a parameter and its gradient, build the new parameter and the new moments.
// Weight decay is decoupled (Loshchilov and Hutter, 2019) and skips tensors of fewer than two axes (biases, norms).
#pragma once

#include <string>
#include <vector>

#include "nn/net.h"

namespace lathe {

struct OptimizerConfig {
  std::string name = "sgd";  // sgd, adam, adamw
  double momentum = 0;
  bool nesterov = false;
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double weight_decay = 0;
};

// The moments of one optimizer: state inputs of the graph under construction.
class Optimizer {
 public:
  // Adds the state inputs of all params, in order.
  Optimizer(Builder&, const OptimizerConfig&, const std::vector<StateSpec>& params);

  // Appends the update of parameter i. `accept` (bool []) gates it: a refused step leaves every bit as it was.
  void update(size_t i, Value param, Value gradient, Value lr, Value accept);
  // Appends the update of what is shared by all parameters (Adam's count).
  void finish(Value accept);

  const std::vector<StateSpec>& specs() const { return specs_; }

 private:
  Value new_state(const std::string& name, const TensorType&);

  Builder& b_;
  OptimizerConfig config_;
  std::vector<StateSpec> specs_;
  std::vector<Values> moments_;  // per parameter
  Value count_;                  // accepted steps, before this one
};

}  // namespace lathe
