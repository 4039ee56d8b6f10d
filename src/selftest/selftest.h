// Self-tests that a user runs on a new machine: every pass proved on tiny twins of the recipes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "ir/step_set.h"
#include "passes/check/validate.h"
#include "passes/pass.h"
#include "recipe/recipe.h"

namespace lathe {

// The built-in recipes whose tiny twins self-tests run: those that a new machine learns something from. The twins of
// the others are long to compile on a device and have no op of their own; `./test --all` trains them.
std::vector<BuiltinRecipe> selftest_recipes();

struct GraphVerdict {           // Passes on the set of a recipe.
  std::string recipe, program;  // names; "all" graphs, or "accumulate": the step is split
  PassVerdict verdict;          // what came of it
};

// Runs the tiny twin of each of selftest_recipes() before and after each pass on the reference interpreter. `passes`
// defaults to the pipeline; tests plant a wrong one. `ranks`: instead, for each of these numbers of ranks, the twin
// divided among them against the whole (validate_ranks), without sharding of state and with each of its levels.
std::vector<GraphVerdict> selftest_passes(std::span<const PassEntry> passes, const Target&,
                                          const std::function<void(const GraphVerdict&)>& on_graph = {},
                                          const std::vector<int>& ranks = {});

// A few training steps of each recipe's tiny twin on a device: each step against the `cpu` backend's from the same
// state, and the same bits when they run again.
struct TrainingCheck {
  std::string recipe;       // its name
  int steps = 0;            // trained
  double loss_error = 0;    // largest of a step that starts from the cpu's state, relative
  double norm_error = 0;    // the same of the gradient's norm
  double update_error = 0;  // the same of the change of the state, in the 2-norm
  double drift = 0;         // largest error of the loss when the device goes its own way: rounding, amplified
  bool repeats = true;      // losses and state are the same bits the second time
  std::string failure;      // the device gave up
  bool ok() const;          // repeats, close to the cpu, no failure
};
std::string to_text(const TrainingCheck&);                                                          // a line
TrainingCheck check_training(const Recipe& tiny, const Backend&, const DeviceOptions&, int steps);  // one recipe
// Each of selftest_recipes().
std::vector<TrainingCheck> selftest_training(const Backend&, const DeviceOptions&, int steps = 6);

// Inputs that make sense for a step graph: state from its first values (moments positive), labels and tokens in range,
// a learning rate and a loss scale of ordinary size.
std::vector<HostTensor> step_inputs(const Graph&, const StateTable&, int64_t classes, uint64_t seed);

}  // namespace lathe
