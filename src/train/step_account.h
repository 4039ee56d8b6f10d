// StepAccount: what the steps of a run said: losses, refused steps, lines of metrics.jsonl. The host hears of a step
// after the next ones were given to the device. A refused step changed nothing there.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "train/compile.h"
#include "train/progress.h"
#include "train/run_dir.h"
#include "train/step_queue.h"

namespace lathe {

class StepAccount {
 public:
  // `c` is read when the first step is heard of. `out`: the run directory, for messages.
  StepAccount(const Compiled& c, const std::string& out, Progress& progress) : c_(c), out_(out), progress_(progress) {}

  // The steps, in order. `rate`: its learning rate. Allocates nothing, but for refused steps. UserError when a step was
  // refused and the recipe does not go on past it.
  void hear(const StepMetrics&, double rate, MetricsLog&);

  double loss() const { return loss_; }
  double smooth_loss() const { return smooth_loss_.value_or(loss_); }  // for people
  double epoch_after(int64_t steps) const;
  void forget();  // no step was heard of: the loss is not a number

  using Info = std::map<std::string, std::string>;
  void save(Info&) const;
  void load(const Info&);

 private:
  void overflowed(int64_t step, double scale);
  void refuse(int64_t step, MetricsLog&);

  const Compiled& c_;
  const std::string& out_;
  Progress& progress_;
  int64_t skipped_ = 0, skipped_in_a_row_ = 0;
  double loss_ = 0, grad_norm_ = 0;
  std::optional<double> smooth_loss_;
};

}  // namespace lathe
