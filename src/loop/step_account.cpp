#include "loop/step_account.h"

#include <array>
#include <cmath>
#include <iterator>
#include <limits>

#include "passes/techniques/gate.h"

namespace lathe {

double StepAccount::epoch_after(int64_t steps) const {
  return static_cast<double>(steps) / static_cast<double>(c_.steps.steps_per_epoch);
}

void StepAccount::record(const StepMetrics& m, double rate, MetricsLog* log) {
  const int64_t step = m.step + 1;
  loss_ = m.loss;
  grad_norm_ = m.grad_norm;
  const bool overflow = !m.accepted && m.gradient_scale > 1 && std::isfinite(m.loss);
  if (!m.accepted) ++skipped_;
  if (m.accepted)
    skipped_in_a_row_ = 0;
  else if (!overflow)
    ++skipped_in_a_row_;
  // Before a refused step may end the run: its line is the last.
  if (log && (step == 1 || step % c_.recipe.train.log_every == 0 || step == c_.steps.total_steps || !m.accepted))
    write(m, rate, *log);
  if (m.accepted)
    smooth_loss_ = smooth_loss_ ? 0.95 * *smooth_loss_ + 0.05 * loss_ : loss_;
  else if (overflow)
    overflowed(step, m.gradient_scale);
  else
    refuse(step);
}

void StepAccount::write(const StepMetrics& m, double rate, MetricsLog& log) const {
  const int64_t step = m.step + 1;
  std::array<Metric, 7 + StepMetrics::kMostAdded> metrics{{{"step", step},
                                                           {"epoch", epoch_after(step)},
                                                           {"loss", loss_},
                                                           {"lr", rate},
                                                           {"grad_norm", grad_norm_},
                                                           {"skipped", skipped_}}};
  size_t count = 6;
  if (m.gradient_scale > 0) metrics[count++] = {"loss_scale", m.gradient_scale};
  for (size_t i = 0; i < m.names.size(); ++i) metrics[count++] = {m.names[i].c_str(), m.added[i]};
  log.write(std::span(metrics).first(count));
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
  progress_.note(fmt::format(
      "step {}: gradients overflow f16 at a loss scale of {:g}; skipped, and the scale is halved", step, scale));
}

void StepAccount::refuse(int64_t step) {
  const std::string what =
      fmt::format("step {}: loss {} and gradient norm {} are not both finite; the weights are as before this step",
                  step, loss_text(loss_), loss_text(grad_norm_));
  const auto& gate = c_.recipe.passes.get<GateOptions>();
  if (GateOptions::skips(gate) && skipped_in_a_row_ < gate.nan_patience) {
    progress_.note("warning: " + what);
    return;
  }
  progress_.finish();
  throw UserError(fmt::format(
      "{} (epoch {}, first batch {}, {} refused in a row); lower optimizer.lr, set train.clip_norm, or continue past "
      "single ones with train.on_nan = \"skip\"; {}",
      what, c_.steps.epoch_of(step - 1), c_.steps.first_batch(step - 1), skipped_in_a_row_, what_is_left_()));
}

}  // namespace lathe
