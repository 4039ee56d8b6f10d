#include "loop/step_inputs.h"

#include <algorithm>
#include <cstring>

#include "passes/partition/vote.h"
#include "passes/techniques/average.h"
#include "passes/techniques/lookahead.h"

namespace lathe {

ScheduleRun schedule_of(const Compiled& c) {
  return {c.recipe.schedule, c.recipe.optimizer.lr, c.steps.total_steps, c.steps.steps_per_epoch};
}

double average_share(const Recipe& r, const TrainingSteps& s, int64_t step) {
  const auto& o = r.passes.get<AverageOptions>();
  if (o.swa_from > 0) {
    const int64_t epochs = (step + 1) / s.steps_per_epoch;  // complete after this step
    if (epochs < o.swa_from) return 1;
    if ((step + 1) % s.steps_per_epoch != 0) return 0;
    return 1.0 / static_cast<double>(epochs - o.swa_from + 1);
  }
  constexpr double kWarmup =
      10;  // after n steps the decay is at most n / (n + 10): about the last tenth of them counts
  const auto n = static_cast<double>(step);
  return 1 - std::min(o.ema, n / (n + kWarmup));
}

double lookahead_share(const Recipe& r, int64_t step) {
  const auto& o = r.passes.get<LookaheadOptions>();
  return LookaheadOptions::is_on(o) && (step + 1) % o.every == 0 ? o.alpha : 0;
}

std::vector<std::string> too_short_for(const Compiled& c) {
  std::vector<std::string> out;
  const ScheduleRun s = schedule_of(c);
  const int reads = find_schedule(s.name)->keys;
  const int64_t epoch = c.steps.steps_per_epoch;
  const auto check = [&](std::string_view key, int64_t value, int64_t needed, const std::string& what) {
    if (needed > s.total_steps)
      out.push_back(fmt::format("{} = {}, but the run has {} steps{}: {}", key, value, s.total_steps,
                                needed == value ? "" : fmt::format(", {} of which are an epoch", epoch), what));
  };
  if (reads & kReadsWarmup)
    check("schedule.warmup_steps", s.warmup_steps, s.warmup_steps,
          fmt::format("the learning rate never reaches {}", s.lr));
  if (s.name == "step")
    check("schedule.step_epochs", c.recipe.schedule.step_epochs, s.step_every(), "the learning rate never falls");
  if (reads & kReadsRestarts)
    check("schedule.restart_epochs", c.recipe.schedule.restart_epochs, s.restart_every(),
          "the schedule never restarts");
  const int64_t slow = c.recipe.passes.get<LookaheadOptions>().every;
  const int64_t average = c.recipe.passes.get<AverageOptions>().swa_from;
  check("optimizer.lookahead", slow, slow, "slow weights never move");
  check("train.swa_from", average, average * epoch, "nothing is averaged");
  return out;
}

namespace {

void stage_scalar(Executor& e, int slot, const char* name, double value) {
  const auto v = static_cast<float>(value);
  std::memcpy(e.staging(slot, name), &v, sizeof(v));
}

}  // namespace

void stage_step_inputs(Executor& e, int slot, int64_t seed, int64_t step, double lr, double loss_weight) {
  const int64_t key[2] = {seed, step};
  std::memcpy(e.staging(slot, "key"), key, sizeof(key));
  stage_scalar(e, slot, "lr", lr);
  stage_scalar(e, slot, "loss_weight", loss_weight);
}

void stage_optional_inputs(Executor& e, int slot, const Compiled& c, int64_t step) {
  if (e.has_input("average")) stage_scalar(e, slot, "average", average_share(c.recipe, c.steps, step));
  if (e.has_input("lookahead")) stage_scalar(e, slot, "lookahead", lookahead_share(c.recipe, step));
}

void stage_rank(Executor& e, int slots, int rank) {
  if (!e.has_input("rank")) return;
  const int32_t value = rank;
  for (int slot = 0; slot < slots; ++slot) std::memcpy(e.staging(slot, "rank"), &value, sizeof(value));
}

void stage_vote(Executor& e, int slot, bool stop) {
  if (e.has_input(kVote)) stage_scalar(e, slot, kVote, stop ? 1 : 0);
}

}  // namespace lathe
