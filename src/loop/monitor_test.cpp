#include "loop/monitor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "loop/step_inputs.h"
#include "loop/trainer.h"
#include "passes/techniques/average.h"
#include "passes/techniques/lookahead.h"
#include "recipe/eval_metrics.h"

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
  EXPECT_TRUE(m.update(1.0, 10, true));
  EXPECT_FALSE(m.update(0.95, 20, true));  // too little
  EXPECT_FALSE(m.should_stop());
  EXPECT_TRUE(m.update(0.875, 30, true));
  EXPECT_FALSE(m.update(NAN, 40, true));
  EXPECT_FALSE(m.should_stop());
  EXPECT_FALSE(m.update(2, 50, true));
  EXPECT_TRUE(m.should_stop());
  EXPECT_EQ(m.best_step(), 30);
  Monitor later(r);
  later.load(info_of(m));
  EXPECT_TRUE(later.should_stop());
  EXPECT_EQ(later.best(), m.best());
  EXPECT_FALSE(Monitor(Recipe{}).should_stop());
}

TEST(Monitor, EveryMetricHasItsDirection) {
  const std::map<data::LabelKind, std::vector<std::string>> keys{
      {data::LabelKind::class_index, {"data.source=synthetic"}},
      {data::LabelKind::value, {"data.source=synthetic", "data.target=value"}},
      {data::LabelKind::mask,
       {"data.source=synthetic", "data.target=mask", "model.family=unet", "model.channels=[4,8]"}},
      {data::LabelKind::image,
       {"data.source=synthetic", "data.target=image", "model.family=unet", "model.channels=[4,8]"}}};
  for (const EvalMetric& metric : kEvalMetrics)
    for (const auto& [target, sets] : keys) {
      std::vector<std::string> all = sets;
      all.insert(all.end(), {"train.patience=1", "train.monitor=" + std::string(metric.name)});
      if (!metric.targets.has(target)) {
        EXPECT_THROW(parse_recipe("", "x.toml", all), UserError) << metric.name << name_of(target);
        continue;
      }
      Monitor m(parse_recipe("", "x.toml", all));
      EXPECT_TRUE(m.update(0.5, 1, true));
      EXPECT_EQ(m.update(0.6, 2, true), metric.higher) << metric.name;
      EXPECT_EQ(m.should_stop(), !metric.higher) << metric.name;
    }
}

// What evaluation prints can be monitored, but for the number that never changes and the one that goes with the loss.
TEST(Monitor, KnowsTheNamesOfEvaluations) {
  EvalResult r;
  std::vector<std::string_view> names{"loss"};
  r.iou = r.perplexity = 0.5;
  r.each([&](std::string_view name, double) { names.push_back(name); });
  r = {};
  r.rmse = r.mae = r.r2 = r.psnr = r.input_psnr = 1;
  r.each([&](std::string_view name, double) { names.push_back(name); });
  std::erase(names, "input_psnr");
  std::erase(names, "perplexity");
  EXPECT_EQ(names, std::vector<std::string_view>(kEvalMetricNames.begin(), kEvalMetricNames.end()));
}

TEST(Monitor, AccuracyIsBetterWhenHigher) {
  Monitor m(parse_recipe("", "x.toml", {"train.patience=1", "train.monitor=accuracy"}));
  EXPECT_TRUE(m.update(0.5, 1, true));
  EXPECT_TRUE(m.update(0.6, 2, true));
  EXPECT_FALSE(m.update(0.6, 3, true));
  EXPECT_TRUE(m.should_stop());
}

TEST(Monitor, PlateausLowerTheRateOneStepLater) {
  const Recipe r = parse_recipe("", "x.toml", {"schedule.name=plateau", "schedule.patience=2", "schedule.gamma=0.3"});
  Monitor m(r);
  m.update(1, 10, true);
  m.update(1, 20, true);
  m.update(1, 25, false);  // the end of this run, not of an epoch
  EXPECT_EQ(m.factor(1000), 1);
  m.update(1, 30, true);
  EXPECT_EQ(m.factor(30), 1);  // staged already
  EXPECT_EQ(m.factor(31), 0.3);
  m.update(1, 40, true);
  m.update(1, 50, true);
  EXPECT_EQ(m.factor(50), 0.3);
  EXPECT_EQ(m.factor(51), 0.3 * 0.3);
  Monitor later(r);
  later.load(info_of(m));
  EXPECT_EQ(info_of(later), info_of(m));
  for (const int64_t step : {50, 51}) EXPECT_EQ(later.factor(step), m.factor(step));
}

TEST(StepInputs, SayWhatTheRunIsTooShortFor) {
  Compiled c;
  c.recipe = parse_recipe(
      "", "x.toml",
      {"train.steps=10", "schedule.warmup_steps=11", "optimizer.lookahead=12", "train.swa_from=3", "optimizer.lr=0.5"});
  c.steps.steps_per_epoch = 4;
  c.steps.total_steps = 10;
  const std::vector<std::string> all{
      "schedule.warmup_steps = 11, but the run has 10 steps: the learning rate never reaches 0.5",
      "optimizer.lookahead = 12, but the run has 10 steps: slow weights never move",
      "train.swa_from = 3, but the run has 10 steps, 4 of which are an epoch: nothing is averaged"};
  EXPECT_EQ(too_short_for(c), all);
  c.steps.total_steps = 12;
  EXPECT_TRUE(too_short_for(c).empty());
  c.recipe = parse_recipe("", "x.toml", {"train.steps=12", "schedule.name=step", "schedule.step_epochs=4"});
  EXPECT_EQ(too_short_for(c).size(), 1u);
  c.recipe = parse_recipe("", "x.toml", {"train.steps=12", "schedule.name=cosine_restarts"});
  EXPECT_EQ(too_short_for(c).size(), 1u);
}

TEST(StepInputs, SharesOfAverages) {
  TrainingSteps s;
  s.steps_per_epoch = 4;
  Recipe r;
  r.passes.get<AverageOptions>().swa_from = 2;
  // Epochs end after the steps 3, 7, 11, 15.
  const double swa[] = {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 1.0 / 2, 0, 0, 0, 1.0 / 3};
  for (int64_t i = 0; i < 16; ++i) EXPECT_EQ(average_share(r, s, i), swa[i]) << i;
  r.passes.get<AverageOptions>().swa_from = 0;
  r.passes.get<AverageOptions>().ema = 0.9;
  EXPECT_EQ(average_share(r, s, 0), 1);
  EXPECT_DOUBLE_EQ(average_share(r, s, 10), 0.5);
  EXPECT_DOUBLE_EQ(average_share(r, s, 1000), 0.1);
  r.passes.get<LookaheadOptions>().every = 3;
  r.passes.get<LookaheadOptions>().alpha = 0.8;
  for (int64_t i = 0; i < 9; ++i) EXPECT_EQ(lookahead_share(r, i), i % 3 == 2 ? 0.8 : 0) << i;
}

}  // namespace
}  // namespace lathe
