#include "train/step_account.h"

#include <cmath>
#include <limits>

namespace lathe {

double StepAccount::epoch_after(int64_t steps) const {
  return static_cast<double>(steps) / static_cast<double>(c_.schedule.steps_per_epoch);
}

void StepAccount::hear(const StepMetrics& m, double rate, MetricsLog& log) {
  const int64_t step = m.step + 1;
  loss_ = m.loss;
  grad_norm_ = m.grad_norm;
  if (m.accepted)
    skipped_in_a_row_ = 0;
  else if (m.gradient_scale > 1 && std::isfinite(m.loss))
    overflowed(step, m.gradient_scale);
  else
    refuse(step, log);
  if (step == 1 || step % c_.recipe.train.log_every == 0 || step == c_.schedule.total_steps || !m.accepted) {
    if (m.gradient_scale > 0)
      log.write({{"step", step},
                 {"epoch", epoch_after(step)},
                 {"loss", loss_},
                 {"lr", rate},
                 {"grad_norm", grad_norm_},
                 {"skipped", skipped_},
                 {"loss_scale", m.gradient_scale}});
    else
      log.write({{"step", step},
                 {"epoch", epoch_after(step)},
                 {"loss", loss_},
                 {"lr", rate},
                 {"grad_norm", grad_norm_},
                 {"skipped", skipped_}});
  }
  if (m.accepted) smooth_loss_ = smooth_loss_ ? 0.95 * *smooth_loss_ + 0.05 * loss_ : loss_;
}

void StepAccount::forget() { loss_ = std::numeric_limits<double>::quiet_NaN(); }

void StepAccount::save(Info& info) const {
  info["skipped"] = std::to_string(skipped_);
  info["skipped_in_a_row"] = std::to_string(skipped_in_a_row_);
}

void StepAccount::load(const Info& info) {
  const auto number = [&](const char* key) {
    const auto it = info.find(key);
    return it == info.end() ? int64_t{0} : std::strtoll(it->second.c_str(), nullptr, 10);
  };
  skipped_ = number("skipped");
  skipped_in_a_row_ = number("skipped_in_a_row");
}

// No fault of the run: the scale was too large, and the device has halved it. That ends at 1.
void StepAccount::overflowed(int64_t step, double scale) {
  ++skipped_;
  progress_.note(fmt::format(
      "step {}: gradients overflow f16 at a loss scale of {:g}; skipped, and the scale is halved", step, scale));
}

void StepAccount::refuse(int64_t step, MetricsLog& log) {
  ++skipped_;
  ++skipped_in_a_row_;
  const std::string what =
      fmt::format("step {}: loss {} and gradient norm {} are not both finite; the weights are as before this step",
                  step, loss_, grad_norm_);
  if (c_.recipe.train.on_nan == "skip" && skipped_in_a_row_ < c_.recipe.train.nan_patience) {
    progress_.note("warning: " + what);
    return;
  }
  progress_.finish();
  log.write({{"step", step}, {"loss", loss_}, {"grad_norm", grad_norm_}, {"skipped", skipped_}});
  throw UserError(fmt::format(
      "{} (epoch {}, first batch {}, {} refused in a row); lower optimizer.lr, set train.clip_norm, or go on past "
      "single ones with train.on_nan = \"skip\"; the last checkpoint is intact: {}",
      what, c_.schedule.epoch_of(step - 1), c_.schedule.first_batch(step - 1), skipped_in_a_row_, out_));
}

}  // namespace lathe
