// Optimizers, schedules, groups, averages and early stopping in whole runs, through the library.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "loop/trainer.h"
#include "nn/optimizers/rules.h"
#include "passes/techniques/average.h"
#include "predict/predict.h"
#include "process.h"
#include "session/state.h"

namespace lathe {
namespace {

using test::read_file;
using test::TempDir;

// 4 steps make an epoch.
Recipe small(const Sets& sets) {
  Sets all{"data.source=synthetic",     "data.shape=[4,4,1]",  "data.train_samples=64",
           "data.test_samples=16",      "train.batch_size=16", "model.hidden=[8]",
           "checkpoint.every_epochs=0", "train.log_every=1",   "train.steps=12"};
  all.insert(all.end(), sets.begin(), sets.end());
  return load_recipe("mlp", all);
}

using Weights = std::map<std::string, std::vector<float>>;

Weights state_of(Executor& e) {
  Weights out;
  for (const Port& p : e.set().state) {
    if (p.type.dtype != DType::f32) continue;
    auto& v = out[p.name];
    v.resize(static_cast<size_t>(p.type.numel()));
    e.read_state(p.name, std::as_writable_bytes(std::span(v)));
  }
  return out;
}

TrainResult run(const Recipe& r, const std::string& out, bool resume = false,
                std::function<void(int64_t, Executor&)> on_step = {}) {
  TrainOptions o;
  o.out = out;
  o.resume = resume;
  o.on_step = std::move(on_step);
  return train(r, o);
}

// step -> value of a metric.
std::map<int64_t, double> metrics(const std::string& out, const char* name) {
  std::map<int64_t, double> values;
  std::istringstream lines(read_file(out + "/metrics.jsonl"));
  for (std::string line; std::getline(lines, line);)
    if (const auto j = nlohmann::json::parse(line); j.contains(name)) values[j["step"]] = j[name];
  return values;
}

std::string checkpoint_bytes(const std::string& out) {
  std::string bytes;
  const std::string at = test::newest_checkpoint(out);
  for (const char* file : {kModelFile, kOptimizerFile, kAverageFile})
    if (std::filesystem::exists(at + "/" + file)) bytes += read_file(at + "/" + file);
  return bytes;
}

TEST(Optimizing, EveryRuleLearns) {
  for (const OptimizerRule& rule : kOptimizerRules) {
    const std::string name(rule.name);
    const std::map<std::string, double> rates{{"rmsprop", 0.01}, {"adam", 0.01}, {"adamw", 0.01},   {"lion", 0.01},
                                              {"radam", 0.4},    {"lars", 0.5},  {"adafactor", 0.2}};
    const double lr = rates.count(name) ? rates.at(name) : 0.05;
    std::map<int64_t, double> losses[2];
    for (const bool early : {false, true}) {
      const TempDir dir;
      Sets sets{"optimizer.name=" + name,
                "optimizer.lr=" + std::to_string(lr),
                "optimizer.weight_decay=0.01",
                "train.eval_every=0",
                "train.steps=24",
                std::string("train.update=") + (early ? "at_gradient" : "after_all")};
      if (rule.keys.trust) sets.push_back("optimizer.trust=0.05");
      run(small(sets), dir.path("run"));
      losses[early] = metrics(dir.path("run"), "loss");
    }
    EXPECT_LT(losses[0][24], 0.9 * losses[0][1]) << name;
    for (const auto& [step, loss] : losses[0]) EXPECT_NEAR(losses[1][step], loss, 1e-4) << name << " step " << step;
  }
}

TEST(Optimizing, ResumesWithTheSameBits) {
  const Sets features[] = {
      {"train.ema=0.9", "optimizer.name=adamw"},
      {"train.swa_from=1", "optimizer.name=rmsprop", "optimizer.lr=0.01"},
      {"optimizer.lookahead=3", "optimizer.name=lion", "optimizer.lr=0.01"},
      {"schedule.name=plateau", "schedule.patience=1", "train.min_delta=100", "schedule.gamma=0.5",
       "data.validation=0.2"},
      {"train.sam=0.05", "train.ema=0.5", "train.accumulate=2", "train.batch_size=8"},
      {"optimizer.name=muon", "optimizer.lr=0.01", "train.accumulate=2", "train.batch_size=8"},
      {"optimizer.name=adafactor",
       "optimizer.groups=[{match=\"fc1.weight\",frozen=true},{match=\"*.bias\",lr_scale=0.5,weight_decay=0.1}]"},
  };
  for (const Sets& sets : features) {
    const TempDir dir;
    const Recipe whole = small(sets);
    run(whole, dir.path("whole"));
    // Interrupted at the end of an epoch, where evaluations have their say, and within one.
    for (const int64_t steps : {8, 10}) {
      const std::string out = dir.path("parts" + std::to_string(steps));
      Recipe part = whole;
      part.train.steps = steps;
      run(part, out);
      run(whole, out, true);
      ASSERT_GT(checkpoint_bytes(out).size(), 1000u);
      EXPECT_TRUE(checkpoint_bytes(out) == checkpoint_bytes(dir.path("whole"))) << sets[0] << " at " << steps;
      EXPECT_EQ(metrics(out, "lr"), metrics(dir.path("whole"), "lr")) << sets[0] << " at " << steps;
    }
  }
}

TEST(Optimizing, PlateauLowersTheRate) {
  const TempDir dir;
  run(small({"schedule.name=plateau", "schedule.patience=1", "train.min_delta=100", "schedule.gamma=0.5",
             "optimizer.lr=0.1", "schedule.min_lr=0.04", "data.validation=0.2"}),
      dir.path("run"));
  auto lr = metrics(dir.path("run"), "lr");
  // Evaluations after 4, 8 and 12 steps: the second is the first without improvement; one step was staged by then.
  EXPECT_DOUBLE_EQ(lr[9], 0.1);
  EXPECT_DOUBLE_EQ(lr[10], 0.05);
  EXPECT_DOUBLE_EQ(lr[12], 0.05);
}

TEST(Optimizing, AveragesFollowTheWeights) {
  for (const Sets& kind : {Sets{"train.ema=0.8"}, Sets{"train.swa_from=2"}})
    for (const char* accumulate : {"train.accumulate=1", "train.accumulate=2"}) {
      const TempDir dir;
      Recipe r = load_recipe(
          "fashion_mnist", {"data.source=synthetic", "data.shape=[8,8,1]", "data.train_samples=64",
                            "data.test_samples=16", "train.batch_size=16", "train.eval_batch=16", "model.channels=[3]",
                            "model.dense=8", "checkpoint.every_epochs=0", "train.steps=12", accumulate, kind[0]});
      const TrainingSteps steps = training_steps(r, 64);
      std::map<std::string, std::vector<double>> expected;
      Weights last;
      const TrainResult result = run(r, dir.path("averaged"), false, [&](int64_t step, Executor& e) {
        last = state_of(e);
        const double share = average_share(r, steps, step - 1);
        for (const auto& [name, w] : last) {
          if (!last.count("average." + name)) continue;
          auto& a = expected[name];
          a.resize(w.size());
          for (size_t i = 0; i < w.size(); ++i) a[i] = a[i] * (1 - share) + static_cast<double>(w[i]) * share;
        }
      });
      ASSERT_TRUE(expected.count("conv1.weight") && expected.count("bn1.running_mean") && expected.count("fc2.bias"));
      for (const auto& [name, a] : expected)
        for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(last["average." + name][i], a[i], 1e-5) << name;
      // The weights themselves are those of a run without averages, and the evaluation is another.
      r.passes.set(AverageOptions{});
      const TrainResult plain = run(r, dir.path("plain"));
      const auto model = [&](const char* run) {
        return read_file(test::newest_checkpoint(dir.path(run)) + "/" + kModelFile);
      };
      EXPECT_TRUE(model("plain") == model("averaged"));
      EXPECT_NE(plain.eval_loss, result.eval_loss);
      // From files: the same numbers; under the plain names the average is an ordinary model.
      EXPECT_EQ(evaluate(dir.path("averaged"), {}).loss, result.eval_loss);
      const std::string at = test::newest_checkpoint(dir.path("averaged"));
      EXPECT_EQ(std::filesystem::file_size(at + "/" + kAverageFile), std::filesystem::file_size(at + "/" + kModelFile));
    }
}

TEST(Optimizing, StopsEarlyAndKeepsTheBest) {
  const TempDir dir;
  const std::string out = dir.path("run");
  Recipe r = small(
      {"train.patience=2", "train.min_delta=100", "checkpoint.best=true", "train.steps=40", "data.validation=0.2"});
  const TrainResult result = run(r, out);
  EXPECT_TRUE(result.stopped_early);
  EXPECT_EQ(result.steps, 12);
  EXPECT_EQ(result.best_step, 4);
  EXPECT_TRUE(std::filesystem::exists(out + "/best/step-000000004/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(out + "/best/step-000000004/optimizer.safetensors"));
  EXPECT_EQ(evaluate(out, {.which = Which::best, .split = data::Split::validation}).loss,
            metrics(out, "validation_loss")[4]);
  EXPECT_EQ(evaluate(out, {.split = data::Split::validation}).loss, metrics(out, "validation_loss")[12]);
  EXPECT_NE(metrics(out, "validation_loss")[4], metrics(out, "validation_loss")[12]);
  EXPECT_EQ(metrics(out, "eval_loss"), (std::map<int64_t, double>{{12, evaluate(out, {}).loss}})) << "once, at the end";
  EXPECT_EQ(predict(out, {"test:0"}, {}, {}, Which::best).size(), 1u);
  EXPECT_TRUE(run(r, out, true).unchanged);
  r.train.patience = 3;
  EXPECT_EQ(run(r, out, true).steps, 16);
  // Only the best is kept, and a run without one says how to get it.
  r = small({"checkpoint.best=true", "data.validation=0.2"});
  run(r, dir.path("improving"));
  int kept = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(dir.path("improving") + "/best"))
    ++kept;
  EXPECT_EQ(kept, 1);
  run(small({}), dir.path("plain"));
  try {
    evaluate(dir.path("plain"), {.which = Which::best});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.exit_code(), Exit::missing_input);
    EXPECT_NE(std::string(e.what()).find("checkpoint.best = true"), std::string::npos) << e.what();
  }
}

TEST(Optimizing, FrozenParametersStayAndHaveNoState) {
  const TempDir dir;
  const Recipe r = small({"optimizer.name=adam", "optimizer.groups=[{match=\"fc1.*\",frozen=true}]"});
  Weights first, last;
  run(r, dir.path("run"), false, [&](int64_t step, Executor& e) { (step == 1 ? first : last) = state_of(e); });
  EXPECT_EQ(first["fc1.weight"], last["fc1.weight"]);
  EXPECT_EQ(first["fc1.bias"], last["fc1.bias"]);
  EXPECT_NE(first["fc2.weight"], last["fc2.weight"]);
  EXPECT_FALSE(last.count("fc1.weight.exp_avg"));
  EXPECT_TRUE(last.count("fc2.weight.exp_avg"));
  const auto error = [](const std::string& groups) {
    try {
      const Recipe bad = parse_recipe("model.hidden = [8]\n[optimizer]\ngroups = " + groups, "a.toml");
      build_steps(bad, describe_data(bad), {});
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::bad_recipe);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error("[{match=\"fc9.*\"}]"),
            "a.toml:3:10: optimizer.groups: group 0: \"fc9.*\" matches no parameter; there are: fc1.weight, fc1.bias, "
            "fc2.weight, fc2.bias");
  EXPECT_NE(error("[{match=\"*\",frozen=true}]").find("every parameter is frozen"), std::string::npos);
}

// One step of sgd at rate 1 takes the gradient off the weights: with it the definition is checked step by step.
TEST(Optimizing, SamTakesTheGradientUphill) {
  constexpr double kRho = 0.5;
  const auto one_step = [](const Recipe& r, const Weights* start, Weights& before) {
    const Dataset data = open_dataset(r);
    const Compiled c = compile(r, data.spec);
    Executor e(c.set, find_backend("cpu").open({}), c.executor);
    initialize_state(e, c.state, r.seed);
    if (start)
      for (const auto& [name, w] : *start) e.write_state(name, std::as_bytes(std::span(w)));
    before = state_of(e);
    std::vector<std::vector<std::byte>> fields;
    for (const data::Field& f : data.train->fields()) fields.emplace_back(static_cast<size_t>(f.type.bytes()));
    std::vector<std::span<std::byte>> spans(fields.begin(), fields.end());
    for (int64_t i = 0; i < 16; ++i) {
      data.train->read(i, spans);
      std::copy(fields[0].begin(), fields[0].end(), e.staging(0, "x") + i * static_cast<int64_t>(fields[0].size()));
      std::copy(fields[1].begin(), fields[1].end(), e.staging(0, "y") + i * static_cast<int64_t>(fields[1].size()));
    }
    stage_step_inputs(e, 0, r.seed, 0, 1.0, 1.0 / 16);
    e.stage(c.program("train"), 0);
    e.run(c.program("train"), 0);
    e.synchronize();
    return state_of(e);
  };
  const Sets plain{"optimizer.momentum=0", "optimizer.lr=1"};
  Sets sam = plain;
  sam.push_back("train.sam=" + std::to_string(kRho));
  Weights first, there;
  const Weights down = one_step(small(plain), nullptr, first);
  double square = 0;
  for (const auto& [name, w] : first)
    for (size_t i = 0; i < w.size(); ++i) square += std::pow(w[i] - down.at(name)[i], 2);
  Weights up = first;
  for (auto& [name, w] : up)
    for (size_t i = 0; i < w.size(); ++i)
      w[i] += static_cast<float>(kRho / std::sqrt(square)) * (first[name][i] - down.at(name)[i]);
  const Weights from_there = one_step(small(plain), &up, there);
  Weights start;
  const Weights actual = one_step(small(sam), nullptr, start);
  ASSERT_EQ(start, first);
  double moved = 0;
  for (const auto& [name, w] : actual)
    for (size_t i = 0; i < w.size(); ++i) {
      const double gradient = static_cast<double>(there[name][i]) - from_there.at(name)[i];
      EXPECT_NEAR(w[i], first[name][i] - gradient, 1e-5) << name;
      moved = std::max(moved, std::fabs(static_cast<double>(w[i]) - down.at(name)[i]));
    }
  EXPECT_GT(moved, 1e-3) << "the second gradient is the first";
}

}  // namespace
}  // namespace lathe
