#include "train/monitor.h"

#include <gtest/gtest.h>

#include <cmath>

#include "train/step_inputs.h"

namespace lathe {
namespace {

Monitor::Info info_of(const Monitor& m) {
  Monitor::Info info;
  m.save(info);
  return info;
}

TEST(Monitor, StopsWhenNothingImproves) {
  const Recipe r = parse_recipe("", "x.toml", {"train.patience=2", "train.min_delta=0.1"});
  Monitor m(r);
  EXPECT_TRUE(m.hear(1.0, 0, 10, true));
  EXPECT_FALSE(m.hear(0.95, 0, 20, true));  // too little
  EXPECT_FALSE(m.should_stop());
  EXPECT_TRUE(m.hear(0.875, 0, 30, true));
  EXPECT_FALSE(m.hear(NAN, 0, 40, true));
  EXPECT_FALSE(m.should_stop());
  EXPECT_FALSE(m.hear(2, 0, 50, true));
  EXPECT_TRUE(m.should_stop());
  EXPECT_EQ(m.best_step(), 30);
  Monitor later(r);
  later.load(info_of(m));
  EXPECT_TRUE(later.should_stop());
  EXPECT_EQ(later.best(), m.best());
  EXPECT_FALSE(Monitor(Recipe{}).should_stop());
}

TEST(Monitor, AccuracyIsBetterWhenHigher) {
  Monitor m(parse_recipe("", "x.toml", {"train.patience=1", "train.monitor=accuracy"}));
  EXPECT_TRUE(m.hear(1, 0.5, 1, true));
  EXPECT_TRUE(m.hear(2, 0.6, 2, true));
  EXPECT_FALSE(m.hear(0, 0.6, 3, true));
  EXPECT_TRUE(m.should_stop());
}

TEST(Monitor, PlateausLowerTheRateOneStepLater) {
  const Recipe r = parse_recipe("", "x.toml", {"schedule.name=plateau", "schedule.patience=2", "schedule.gamma=0.3"});
  Monitor m(r);
  m.hear(1, 0, 10, true);
  m.hear(1, 0, 20, true);
  m.hear(1, 0, 25, false);  // the end of this run, not of an epoch
  EXPECT_EQ(m.factor(1000), 1);
  m.hear(1, 0, 30, true);
  EXPECT_EQ(m.factor(30), 1);  // staged already
  EXPECT_EQ(m.factor(31), 0.3);
  m.hear(1, 0, 40, true);
  m.hear(1, 0, 50, true);
  EXPECT_EQ(m.factor(50), 0.3);
  EXPECT_EQ(m.factor(51), 0.3 * 0.3);
  Monitor later(r);
  later.load(info_of(m));
  EXPECT_EQ(info_of(later), info_of(m));
  for (const int64_t step : {50, 51}) EXPECT_EQ(later.factor(step), m.factor(step));
}

TEST(StepInputs, SharesOfAverages) {
  TrainSchedule s;
  s.steps_per_epoch = 4;
  Recipe r;
  r.train.swa_from = 2;
  // Epochs end after the steps 3, 7, 11, 15.
  const double swa[] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1.0 / 2, 0, 0, 0, 1.0 / 3};
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(average_share(r, s, i), swa[i]) << i;
  r.train.swa_from = 0;
  r.train.ema = 0.9;
  EXPECT_EQ(average_share(r, s, 0), 1);
  EXPECT_DOUBLE_EQ(average_share(r, s, 10), 0.5);
  EXPECT_DOUBLE_EQ(average_share(r, s, 1000), 0.1);
  r.optimizer.lookahead = 3;
  r.optimizer.lookahead_alpha = 0.8;
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(lookahead_share(r, i), i % 3 == 2 ? 0.8 : 0) << i;
}

}  // namespace
}  // namespace lathe
