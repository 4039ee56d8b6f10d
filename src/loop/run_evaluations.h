// The evaluations of a run: on validation data while it trains, and on test data once, where it ends. A run without
// validation data is evaluated on test data, for information: nothing is chosen by them.
#pragma once

#include <memory>
#include <optional>
#include <string>

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
  struct When {                        // Where in the run it is.
    bool last = false;                 // its last step is done
    bool regular = false;              // as Monitor::update
    int64_t step = 0;                  // that was done
    const Monitor* monitor = nullptr;  // may end it; null: none does
    const StopFlag* stop = nullptr;    // as Evaluation::run
  };
  // None: an evaluation was left. Allocates nothing.
  std::optional<Found> run(const When&);

  // What train.monitor judges a run by; NaN where an evaluation has no such number: no improvement.
  double monitored(const EvalResult&) const;

 private:
  bool ends(const EvalResult&, const When&) const;

  std::string monitor_;                            // train.monitor
  std::unique_ptr<Evaluation> validation_, test_;  // null: there is no such set
};

// UserError where the recipe chooses (patience, plateau, the best checkpoint) and has no validation data to choose by.
void check_selection(const Recipe&, bool has_validation);

}  // namespace lathe
