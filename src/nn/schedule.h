// Learning-rate schedules: functions of the step, computed on the host and staged with the batch. The table below is
// the only list of them: recipe keys and help follow from it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace lathe {

struct ScheduleConfig {  // The section [schedule] of a recipe.
  std::string name = "constant";
  int64_t warmup_steps = 0;     // linear from lr / warmup_steps
  int64_t step_epochs = 10;     // epochs after which `gamma` applies
  double gamma = 0.1;           // factor of a fall
  double min_lr = 0;            // at the end
  double power = 2;             // polynomial
  double start = 0.04;          // one_cycle: first rate, of lr
  double rise = 0.3;            // one_cycle: part of the run that rises
  int64_t restart_epochs = 10;  // cosine_restarts: epochs of the first cycle
  int64_t restart_factor = 1;   // cosine_restarts: each cycle is so many times as long as the one before
  double decay = 0.2;           // warmup_stable_decay: part of the run that falls
  int64_t patience = 3;         // plateau: evaluations without improvement before a fall
  friend bool operator==(const ScheduleConfig&, const ScheduleConfig&) = default;
};

struct ScheduleRun : ScheduleConfig {                                   // A schedule of a run whose length is known.
  double lr = 0.1;                                                      // the peak
  int64_t total_steps = 1;                                              // of the run
  int64_t steps_per_epoch = 1;                                          // of the run
  int64_t step_every() const { return step_epochs * steps_per_epoch; }  // steps after which `gamma` applies
  int64_t restart_every() const { return restart_epochs * steps_per_epoch; }  // steps of the first cycle
};

enum ScheduleKey : unsigned {  // What a schedule reads; a set of bits.
  kReadsWarmup = 1,            // schedule.warmup_steps
  kReadsMinLr = 2,             // schedule.min_lr
  kReadsGamma = 4,             // schedule.gamma
  kReadsStepEpochs = 8,        // schedule.step_epochs
  kReadsPower = 16,            // schedule.power
  kReadsCycle = 32,            // schedule.start and rise
  kReadsRestarts = 64,         // schedule.restart_epochs and restart_factor
  kReadsDecay = 128,           // schedule.decay
  kReadsPatience = 256,        // schedule.patience
};

struct ScheduleRule {                                // A schedule.
  std::string_view name;                             // schedule.name in recipes
  std::string_view doc;                              // its course, in words
  unsigned keys;                                     // ScheduleKey: what it reads beside the peak
  bool to_end;                                       // its course depends on the length of the run
  double (*rate)(const ScheduleRun&, int64_t step);  // after the warm-up, if it reads that
  bool by_evaluations = false;                       // falls where the monitored metric no longer improves
};

double constant_rate(const ScheduleRun&, int64_t step);             // see the table
double step_rate(const ScheduleRun&, int64_t step);                 // see the table
double exponential_rate(const ScheduleRun&, int64_t step);          // see the table
double linear_rate(const ScheduleRun&, int64_t step);               // see the table
double polynomial_rate(const ScheduleRun&, int64_t step);           // see the table
double cosine_rate(const ScheduleRun&, int64_t step);               // see the table
double cosine_restarts_rate(const ScheduleRun&, int64_t step);      // see the table
double one_cycle_rate(const ScheduleRun&, int64_t step);            // see the table
double warmup_stable_decay_rate(const ScheduleRun&, int64_t step);  // see the table

// All schedules.
inline constexpr ScheduleRule kScheduleRules[] = {
    {"constant", "the same to the end", kReadsWarmup, false, constant_rate},
    {"step", "a drop by gamma every step_epochs", kReadsWarmup | kReadsGamma | kReadsStepEpochs, false, step_rate},
    {"exponential", "a smooth fall by gamma in step_epochs", kReadsWarmup | kReadsGamma | kReadsStepEpochs, false,
     exponential_rate},
    {"linear", "a straight line to min_lr", kReadsWarmup | kReadsMinLr, true, linear_rate},
    {"polynomial", "the remaining part of the run to a power", kReadsWarmup | kReadsMinLr | kReadsPower, true,
     polynomial_rate},
    {"cosine", "half a cosine to min_lr", kReadsWarmup | kReadsMinLr, true, cosine_rate},
    {"cosine_restarts", "half cosines, each from the peak (Loshchilov and Hutter, 2017)",
     kReadsWarmup | kReadsMinLr | kReadsRestarts, false, cosine_restarts_rate},
    {"one_cycle", "up and down once, both as half cosines (Smith, 2018)", kReadsMinLr | kReadsCycle, true,
     one_cycle_rate},
    {"warmup_stable_decay", "the peak, then a straight line to min_lr at the end",
     kReadsWarmup | kReadsMinLr | kReadsDecay, true, warmup_stable_decay_rate},
    {"plateau", "a drop by gamma when evaluations no longer improve",
     kReadsWarmup | kReadsMinLr | kReadsGamma | kReadsPatience, false, constant_rate, true},
};

const ScheduleRule* find_schedule(std::string_view name);  // or null
bool follows_evaluations(const ScheduleConfig&);           // its rule does

inline constexpr auto kScheduleNames = [] {  // of the table
  std::array<std::string_view, std::size(kScheduleRules)> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = kScheduleRules[i].name;
  return names;
}();

// Of a step counted from 0. UserError: no such schedule. What a plateau did is not in it.
double learning_rate(const ScheduleRun&, int64_t step);

}  // namespace lathe
