#include "nn/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lathe {
namespace {

// From a to b along half a cosine, or straight; `done` from 0 to 1.
double along_cosine(double a, double b, double done) {
  return b + (a - b) * 0.5 * (1 + std::cos(std::numbers::pi * std::clamp(done, 0.0, 1.0)));
}
double along_line(double a, double b, double done) { return a + (b - a) * std::clamp(done, 0.0, 1.0); }

double quotient(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// The part of the run after the warm-up that is done.
double done_after_warmup(const ScheduleRun& c, int64_t step) {
  return std::min(1.0, quotient(step - c.warmup_steps, std::max<int64_t>(1, c.total_steps - c.warmup_steps)));
}

}  // namespace

double constant_rate(const ScheduleRun& c, int64_t) { return c.lr; }

double step_rate(const ScheduleRun& c, int64_t step) {
  return c.lr * std::pow(c.gamma, static_cast<double>(step / std::max<int64_t>(1, c.step_every())));
}

double exponential_rate(const ScheduleRun& c, int64_t step) {
  return c.lr * std::pow(c.gamma, quotient(step - c.warmup_steps, std::max<int64_t>(1, c.step_every())));
}

double linear_rate(const ScheduleRun& c, int64_t step) {
  return along_line(c.lr, c.min_lr, done_after_warmup(c, step));
}

double polynomial_rate(const ScheduleRun& c, int64_t step) {
  return c.min_lr + (c.lr - c.min_lr) * std::pow(1 - done_after_warmup(c, step), c.power);
}

double cosine_rate(const ScheduleRun& c, int64_t step) {
  return along_cosine(c.lr, c.min_lr, done_after_warmup(c, step));
}

double cosine_restarts_rate(const ScheduleRun& c, int64_t step) {
  int64_t at = step - c.warmup_steps, length = std::max<int64_t>(1, c.restart_every());
  if (c.restart_factor <= 1) at %= length;
  while (at >= length) {
    at -= length;
    length *= c.restart_factor;
  }
  return along_cosine(c.lr, c.min_lr, quotient(at, length));
}

// PyTorch's OneCycleLR: the peak is at step rise * total - 1, the end at the last step.
double one_cycle_rate(const ScheduleRun& c, int64_t step) {
  const double at = static_cast<double>(step), last = static_cast<double>(c.total_steps) - 1;
  const double peak = std::max(0.0, c.rise * static_cast<double>(c.total_steps) - 1);
  if (at < peak) return along_cosine(c.start * c.lr, c.lr, at / peak);
  return along_cosine(c.lr, c.min_lr, last > peak ? (at - peak) / (last - peak) : 0);
}

double warmup_stable_decay_rate(const ScheduleRun& c, int64_t step) {
  const double total = static_cast<double>(c.total_steps);
  const double begin = std::max(static_cast<double>(c.warmup_steps), total * (1 - c.decay));
  const double at = static_cast<double>(step);
  return at <= begin ? c.lr : along_line(c.lr, c.min_lr, (at - begin) / (total - begin));
}

const ScheduleRule* find_schedule(std::string_view name) {
  const auto* found = std::ranges::find(kScheduleRules, name, &ScheduleRule::name);
  return found == std::end(kScheduleRules) ? nullptr : found;
}

bool follows_evaluations(const ScheduleConfig& c) {
  const ScheduleRule* rule = find_schedule(c.name);
  return rule && rule->by_evaluations;
}

double learning_rate(const ScheduleRun& c, int64_t step) {
  const ScheduleRule* rule = find_schedule(c.name);
  LATHE_USER_CHECK(rule, "schedule.name: expected one of {}, got \"{}\"", fmt::join(kScheduleNames, ", "), c.name);
  if ((rule->keys & kReadsWarmup) && step < c.warmup_steps) return c.lr * quotient(step + 1, c.warmup_steps);
  return rule->rate(c, step);
}

}  // namespace lathe
