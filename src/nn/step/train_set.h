// A training step around any loss: gradients of parameters, the optimizer, running statistics. What the steps of
// recipes are made with (nn/step/step.h), and what programs make their own with: several networks, several optimizers.
#pragma once

#include <functional>
#include <string>

#include "nn/net.h"
#include "nn/optimizer.h"

namespace lathe {

struct UpdateOptions {  // What train_set trains.
  std::string scope;    // in the names of the optimizer's state: one for each optimizer of a set
  std::function<bool(const StateSpec&)> trained = {};  // which parameters; none: all that the net has
};

// Ends the net's graph: appends `grad` of the loss by the trained parameters, the optimizer's updates of them (with the
// step input "lr"), those of running statistics, and the metric "loss". UserError where nothing is trained. Gradients
// are those of the loss as it is: with AccumulateOptions those of several batches are added up.
StepSet train_set(Net&, Value loss, const OptimizerConfig&, const UpdateOptions& = {});

// Ends the net's graph as it is: evaluation, prediction. `trained` as above: what training sets of the same run say.
StepSet finish_set(Net&, const std::function<bool(const StateSpec&)>& trained = {});

}  // namespace lathe
