#include "nn/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lathe {

double learning_rate(const ScheduleConfig& c, int64_t step) {
  if (step < c.warmup_steps) return c.lr * static_cast<double>(step + 1) / static_cast<double>(c.warmup_steps);
  const int64_t after = step - c.warmup_steps, span = std::max<int64_t>(1, c.total_steps - c.warmup_steps);
  if (c.name == "constant") return c.lr;
  if (c.name == "step") return c.lr * std::pow(c.gamma, static_cast<double>(step / std::max<int64_t>(1, c.step_every)));
  LATHE_USER_CHECK(c.name == "cosine", "schedule.name: expected constant, step or cosine, got \"{}\"", c.name);
  const double done = std::min(1.0, static_cast<double>(after) / static_cast<double>(span));
  return c.min_lr + (c.lr - c.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * done));
}

}  // namespace lathe
