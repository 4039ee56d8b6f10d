// StepAccount: what the steps of a run said: losses, refused steps, lines of metrics.jsonl. The host records a step
// after the next ones were submitted. A refused step changed nothing there.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>

#include "compile/compile.h"
#include "loop/step_queue.h"
#include "rundir/progress.h"
#include "rundir/run_dir.h"

namespace lathe {

class StepAccount {
 public:
  // `c` is read when the first step is recorded. `what_is_left`: of the run when it ends with a refused step, for the
  // message.
  StepAccount(const Compiled& c, std::function<std::string()> what_is_left, ProgressSink& progress)
      : c_(c), what_is_left_(std::move(what_is_left)), progress_(progress) {}

  // The steps, in order. `rate`: its learning rate. `log`: null where another rank writes it. Allocates nothing, but
  // for refused steps. UserError when a step was refused and the recipe does not continue past it.
  void record(const StepMetrics&, double rate, MetricsLog*);

  double loss() const { return loss_; }
  double smooth_loss() const { return smooth_loss_.value_or(loss_); }  // for people
  int64_t skipped() const { return skipped_; }                         // refused steps, of all parts of the run
  double epoch_after(int64_t steps) const;
  void forget();  // no step was recorded: the loss is not a number

  using Info = std::map<std::string, std::string>;
  void save(Info&) const;
  void load(const Info&);

 private:
  void overflowed(int64_t step, double scale);
  void write(const StepMetrics&, double rate, MetricsLog&) const;
  void refuse(int64_t step);

  const Compiled& c_;
  std::function<std::string()> what_is_left_;
  ProgressSink& progress_;
  int64_t skipped_ = 0, skipped_in_a_row_ = 0;
  double loss_ = 0, grad_norm_ = 0;
  std::optional<double> smooth_loss_;
};

}  // namespace lathe
