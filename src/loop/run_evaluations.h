// The evaluations of a run: on validation data while it trains, and on test data once, where it ends. A run without
// validation data is evaluated on test data, for information: nothing is chosen by them.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "loop/evaluation.h"
#include "loop/monitor.h"

namespace lathe {

class RunEvaluations {
 public:
  RunEvaluations(const Compiled&, Executor&, const Dataset&);

  bool any() const { return validation_ || test_; }

  struct Found {
    EvalResult followed;             // of validation data, or of test data where there are none
    std::optional<EvalResult> test;  // where the run ends here and `followed` is not the test set
  };
  // `ends`: whether the run ends with the numbers that it is given. None: a signal came first, and nothing was told.
  std::optional<Found> run(const std::function<bool(const EvalResult&)>& ends, const StopSignals* stop);
  Found all();  // of every set that there is

  // What train.monitor judges a run by; NaN where an evaluation has no such number: no improvement.
  static double monitored(const EvalResult&, const Recipe&);

 private:
  std::unique_ptr<Evaluation> validation_, test_;  // null: there is no such set
};

// UserError where the recipe chooses (patience, plateau, the best checkpoint) and has no validation data to choose by.
void check_selection(const Recipe&, bool has_validation);

}  // namespace lathe
