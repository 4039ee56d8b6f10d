#include "nn/schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "base/error.h"

namespace lathe {
namespace {

// 10 steps of warm-up to 1, then 100 more; 30 steps make the period of what has one.
ScheduleRun course(const char* name) {
  const ScheduleConfig c{.name = name,
                         .warmup_steps = 10,
                         .step_epochs = 3,
                         .gamma = 0.5,
                         .min_lr = 0.1,
                         .power = 3,
                         .restart_epochs = 3,
                         .restart_factor = 2,
                         .decay = 0.5};
  return {c, 1.0, 110, 10};
}

TEST(Schedule, FollowsItsCourse) {
  struct Row {
    const char* name;
    int64_t step;
    double rate;
  };
  const double half = 0.1 + 0.9 / 2;
  const Row table[] = {
      {"constant", 5, 0.6},
      {"constant", 77, 1},
      {"step", 29, 1},
      {"step", 30, 0.5},
      {"step", 95, 0.125},
      {"exponential", 10, 1},
      {"exponential", 40, 0.5},
      {"exponential", 25, std::sqrt(0.5)},
      {"linear", 10, 1},
      {"linear", 60, half},
      {"linear", 110, 0.1},
      {"linear", 500, 0.1},
      {"polynomial", 10, 1},
      {"polynomial", 60, 0.1 + 0.9 / 8},
      {"polynomial", 110, 0.1},
      {"cosine", 10, 1},
      {"cosine", 60, half},
      {"cosine", 110, 0.1},
      {"cosine", 500, 0.1},
      {"cosine_restarts", 10, 1},
      {"cosine_restarts", 25, half},
      {"cosine_restarts", 40, 1},
      {"cosine_restarts", 70, half},
      {"cosine_restarts", 100, 1},
      {"cosine_restarts", 160, half},
      {"warmup_stable_decay", 10, 1},
      {"warmup_stable_decay", 55, 1},
      {"warmup_stable_decay", 55 + 11, 1 - 0.9 / 5},
      {"warmup_stable_decay", 110, 0.1},
      {"plateau", 99, 1},
  };
  for (const Row& r : table) EXPECT_NEAR(learning_rate(course(r.name), r.step), r.rate, 1e-12) << r.name << r.step;
  for (const ScheduleRule& rule : kScheduleRules) {
    const ScheduleRun c = course(rule.name.data());
    if (rule.keys & kReadsWarmup) {
      EXPECT_DOUBLE_EQ(learning_rate(c, 0), 0.1) << rule.name;
      EXPECT_DOUBLE_EQ(learning_rate(c, 9), 1.0) << rule.name;
    }
    for (int64_t s = 0; s < 1000; ++s) {
      EXPECT_GE(learning_rate(c, s), 0) << rule.name;
      EXPECT_LE(learning_rate(c, s), 1) << rule.name;
    }
    // A course that does not depend on the length of the run continues as it began.
    ScheduleRun longer = c;
    longer.total_steps = 1000;
    bool same = true;
    for (int64_t s = 0; s < c.total_steps; ++s) same &= learning_rate(c, s) == learning_rate(longer, s);
    EXPECT_EQ(same, !rule.to_end) << rule.name;
  }
  EXPECT_THROW(learning_rate(course("nothing"), 20), UserError);
}

TEST(Schedule, OneCycleIsPyTorchs) {
  // torch.optim.lr_scheduler.OneCycleLR(max_lr=1, total_steps=20, final_div_factor=1e2), computed from its formula.
  const ScheduleRun c{{.name = "one_cycle", .min_lr = 4e-4}, 1, 20};
  const auto cosine = [](double a, double b, double t) {
    return b + (a - b) / 2 * (1 + std::cos(std::numbers::pi * t));
  };
  for (int64_t s = 0; s < 20; ++s) {
    const auto at = static_cast<double>(s);
    const double expected = s <= 5 ? cosine(0.04, 1, at / 5) : cosine(1, 4e-4, (at - 5) / 14);
    EXPECT_NEAR(learning_rate(c, s), expected, 1e-12) << s;
  }
  EXPECT_NEAR(learning_rate({{.name = "one_cycle"}, 1, 1}, 0), 1, 1e-12);
}

}  // namespace
}  // namespace lathe
