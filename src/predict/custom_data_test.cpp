// Training on arrays, and predicting with what came of it.
#include "workload/custom_data.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "data/arrays.h"
#include "io/safetensors.h"
#include "loop/eval_result.h"
#include "loop/signals.h"
#include "loop/trainer.h"
#include "predict/predict.h"
#include "predict/predictor.h"
#include "rundir/runs.h"
#include "session/state.h"

namespace lathe {
namespace {

class CustomData : public testing::Test {
 protected:
  CustomData() {
    char name[] = "/tmp/lathe-own-XXXXXX";
    dir_ = mkdtemp(name);
    for (size_t i = 0; i < labels_.size(); ++i) {
      const auto at = static_cast<float>(i % 16) / 8 - 1;
      x_[2 * i] = at;
      x_[2 * i + 1] = 1;
      labels_[i] = at > 0;
    }
    options_.out = dir_ + "/run";
    options_.train_data = data::array_source(x_, {2}, labels_, 2);
    options_.eval_data = options_.train_data;
  }
  ~CustomData() override { std::filesystem::remove_all(dir_); }

  static Recipe recipe(const Sets& sets = {}) {
    return parse_recipe(R"(
      model = { family = "mlp", hidden = [8] }
      optimizer = { name = "adam", lr = 0.05 }
      train = { epochs = 20, batch_size = 16 }
      device.threads = 1
    )",
                        "own.toml", sets);
  }

  std::string dir_;
  std::vector<float> x_ = std::vector<float>(2 * 64);
  std::vector<int32_t> labels_ = std::vector<int32_t>(64);
  TrainOptions options_;
};

TEST_F(CustomData, TrainedAndPredicted) {
  const TrainResult result = train(recipe(), options_);
  EXPECT_GT(result.accuracy, 0.95);
  EXPECT_EQ(load_run_recipe(options_.out, {}).data.source.name, "arrays");

  Predictor one(options_.out), all(options_.out, {.batch = 64});
  ASSERT_EQ(all.outputs(), 2);
  EXPECT_EQ(one.sample(), (TensorType{DType::f32, {1, 2, 1}}));
  std::vector<float> scores(2 * 64), each(2);
  all(x_, scores);
  int64_t hits = 0;
  for (size_t i = 0; i < labels_.size(); ++i) {
    hits += (scores[2 * i + 1] > scores[2 * i]) == (labels_[i] == 1);
    one(std::span(x_).subspan(2 * i, 2), each);
    EXPECT_NEAR(each[0], scores[2 * i], 1e-5);
    EXPECT_NEAR(each[1], scores[2 * i + 1], 1e-5);
  }
  EXPECT_NEAR(static_cast<double>(hits) / 64, result.accuracy, 1e-9);
  EXPECT_THROW(one(std::span(x_).first(3), each), UserError);
  EXPECT_THROW(one(std::span(x_).first(2), scores), UserError);
  EXPECT_THROW(one(std::vector<uint8_t>(2), each), UserError);
  // Who has no arrays cannot evaluate.
  EXPECT_THROW(evaluate(options_.out, {}), UserError);
}

TEST_F(CustomData, NumbersComeInTheUnitsOfTheData) {
  // 1000 * x + 5000, and 0.3 - 0.01 * x: the second is learned as well as the first.
  std::vector<float> y(2 * 64), shifted_x(2 * 32), shifted_y(2 * 32);
  for (size_t i = 0; i < 64; ++i) y[2 * i] = 1000 * x_[2 * i] + 5000, y[2 * i + 1] = 0.3f - 0.01f * x_[2 * i];
  // Evaluation data of another mean: errors are given in the same units.
  for (size_t i = 0; i < 32; ++i) {
    shifted_x[2 * i] = static_cast<float>(i) / 40, shifted_x[2 * i + 1] = 1;
    shifted_y[2 * i] = 1000 * shifted_x[2 * i] + 5000, shifted_y[2 * i + 1] = 0.3f - 0.01f * shifted_x[2 * i];
  }
  options_.train_data = data::array_source(x_, {2}, data::ArrayLabels::values(y, 2));
  options_.eval_data = data::array_source(shifted_x, {2}, data::ArrayLabels::values(shifted_y, 2));
  const TrainResult result = train(recipe({"train.epochs=40"}), options_);
  ASSERT_TRUE(result.test && result.test->rmse);
  EXPECT_LT(*result.test->rmse, 0.2);  // deviations
  EXPECT_GT(*result.test->r2, 0.9);
  const Recipe stored = load_run_recipe(options_.out, {});
  EXPECT_EQ(stored.data.target, "value");
  EXPECT_EQ(*stored.data.source.params.find<Doubles>("target_mean"), options_.train_data->label_units().means);
  EXPECT_EQ(*stored.data.source.params.find<Doubles>("target_scale"), options_.train_data->label_units().scales);

  Predictor all(options_.out, {.batch = 64});
  ASSERT_EQ(all.outputs(), 2);
  std::vector<float> out(2 * 64);
  all(x_, out);
  double squares[2] = {};
  for (size_t i = 0; i < out.size(); ++i) squares[i % 2] += std::pow(out[i] - y[i], 2);
  EXPECT_LT(std::sqrt(squares[0] / 64), 100);
  EXPECT_LT(std::sqrt(squares[1] / 64), 0.001);
  // `lathe predict` says the same of a file with them.
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (64, 2), }";
  header.resize(117, ' ');
  std::ofstream(dir_ + "/x.npy", std::ios::binary)
      << std::string("\x93NUMPY\x01\0\x76\0", 10) << header << '\n'
      << std::string_view(reinterpret_cast<const char*>(x_.data()), x_.size() * sizeof(float));
  const std::vector<Prediction> said = predict(options_.out, {dir_ + "/x.npy"}, {});
  ASSERT_EQ(said.size(), 64u);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(said[i / 2].values[i % 2], out[i], i % 2 ? 1e-7 : 0.01);
  EXPECT_EQ(said[63].input, dir_ + "/x.npy:63");
  // Resumed with the same arrays it is the same run.
  options_.resume = true;
  EXPECT_TRUE(train(recipe({"train.epochs=40"}), options_).unchanged);
}

TEST_F(CustomData, PixelsToPixels) {
  // Bright pixels are the mask; the image is the negative of the sample.
  std::vector<uint8_t> x(48 * 64), masks(x.size()), images(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    masks[i] = x[i] > 127;
    images[i] = static_cast<uint8_t>(255 - x[i]);
  }
  const auto unet = [](const std::string& target) {
    return parse_recipe(R"(
      model = { family = "unet", channels = [8, 16] }
      optimizer = { name = "adam", lr = 0.01 }
      train = { epochs = 10, batch_size = 8 }
      device.threads = 1
    )",
                        "unet.toml", {"data.source=pixel_arrays", "data.target=" + target});
  };
  options_.train_data = options_.eval_data = data::array_source(x, {8, 8}, data::ArrayLabels::masks(masks, 2));
  const TrainResult mask = train(unet("mask"), options_);
  EXPECT_GT(mask.accuracy, 0.9);
  Predictor segment(options_.out);
  EXPECT_EQ(segment.outputs(), 8 * 8 * 2);
  EXPECT_EQ(segment.sample(), (TensorType{DType::u8, {8, 8, 1}}));
  // What the recipe says must be what the arrays are.
  EXPECT_THROW(with_custom_data(unet("image"), *options_.train_data), UserError);
  EXPECT_THROW(with_custom_data(recipe(), *options_.train_data), UserError);

  options_.out += "-image";
  options_.train_data = options_.eval_data = data::array_source(x, {8, 8}, data::ArrayLabels::images(images));
  const TrainResult image = train(unet("image"), options_);
  ASSERT_TRUE(image.test && image.test->psnr);
  EXPECT_GT(*image.test->psnr, *image.test->input_psnr + 3);
  Predictor restore(options_.out);
  EXPECT_EQ(restore.outputs(), 8 * 8);
}

TEST_F(CustomData, SetsHaveTheirNames) {
  const auto sets = [&](const Sets& keys, const auto& validation, const auto& test) {
    return custom_dataset(with_custom_data(recipe(keys), *options_.train_data), options_.train_data, validation, test);
  };
  const std::shared_ptr<const data::Source> none, given = options_.train_data;
  const Dataset part = sets({"data.validation=0.25"}, none, none);
  EXPECT_EQ(part.spec.train, 48);
  EXPECT_EQ(part.spec.validation, 16);
  EXPECT_EQ(part.spec.test, 0);
  EXPECT_EQ(part.test, nullptr);
  EXPECT_EQ(part.spec.resident_bytes, 64 * 8) << "the numbers of the samples";
  const Dataset whole = sets({}, none, none);
  EXPECT_EQ(whole.spec.train, 64);
  EXPECT_EQ(whole.validation, nullptr);
  EXPECT_EQ(whole.test, nullptr);
  const Dataset all = sets({}, given, given);
  EXPECT_EQ(all.spec.validation, 64);
  EXPECT_EQ(all.spec.test, 64);
  EXPECT_EQ(all.spec.train, 64);
  EXPECT_THROW(sets({"data.validation=0.25"}, given, none), UserError) << "two validation sets";
}

TEST_F(CustomData, ValidationDataAreWhatIsChosenBy) {
  TrainOptions o = options_;
  EXPECT_THROW(train(recipe({"checkpoint.best=true"}), o), UserError) << "test data are not";
  o.validation_data = options_.train_data;
  const TrainResult r = train(recipe({"checkpoint.best=true", "train.monitor=accuracy"}), o);
  ASSERT_TRUE(r.validation && r.test);
  EXPECT_EQ(r.validation->loss, r.test->loss) << "the same samples";
  EXPECT_GT(r.best_step, 0);
  EXPECT_TRUE(std::filesystem::exists(o.out + "/best"));
  EXPECT_EQ(read_run(o.out).state, RunState::finished) << "train() leaves a summary";
  o.train_data = o.eval_data = nullptr;
  EXPECT_THROW(train(recipe(), o), UserError);
}

TEST_F(CustomData, AClassThatASetLacksIsReported) {
  std::vector<int32_t> ones(64, 1);
  options_.eval_data = data::array_source(x_, {2}, ones, 2);
  const TrainResult r = train(recipe({"train.epochs=1"}), options_);
  ASSERT_EQ(r.warnings.size(), 1u);
  EXPECT_NE(r.warnings[0].find("no sample of class 0 in the test set"), std::string::npos) << r.warnings[0];
}

TEST_F(CustomData, NoEpochsLeaveTheFirstCheckpoint) {
  const TrainResult first = train(recipe({"train.epochs=0"}), options_);
  EXPECT_EQ(first.steps, 0);
  EXPECT_TRUE(first.test.has_value());
  EXPECT_FALSE(first.unchanged);
  EXPECT_EQ(read_run(options_.out).state, RunState::finished);
  EXPECT_EQ(Predictor(options_.out).outputs(), 2);
  options_.resume = true;
  EXPECT_TRUE(train(recipe({"train.epochs=0"}), options_).unchanged);
  const TrainResult resumed = train(recipe({"train.epochs=2"}), options_);
  options_.resume = false;
  options_.out += "-whole";
  EXPECT_EQ(train(recipe({"train.epochs=2"}), options_).eval_loss, resumed.eval_loss);
}

TEST_F(CustomData, ResumedWithTheSamePassesOnly) {
  options_.compile.passes.added = {{"fuse", {"mine", [](StepSet s, const PassContext&) { return s; }, Level::tensor}}};
  train(recipe({"train.epochs=1"}), options_);
  options_.resume = true;
  EXPECT_NO_THROW(train(recipe({"train.epochs=2"}), options_));
  options_.compile.passes.added.clear();
  EXPECT_THROW(train(recipe({"train.epochs=3"}), options_), UserError);
}

// What a custom source may get wrong.
struct Wrong {
  int64_t size = 64, classes = 2;
  size_t fields = 2;
  TensorType target{DType::i32, {}};
  std::function<void(int64_t, data::SampleSpans)> read = {};
};
class WrongSource final : public data::Source {
 public:
  explicit WrongSource(Wrong w) : wrong_(std::move(w)), fields_(wrong_.fields, {"x", {DType::f32, {1, 2, 1}}}) {
    if (wrong_.fields > 1) fields_[1].type = wrong_.target;
    if (wrong_.target.dtype == DType::u8) fields_[0].type = {DType::u8, {2, 2, 1}};
  }
  int64_t size() const override { return wrong_.size; }
  std::span<const data::Field> fields() const override { return fields_; }
  void read(int64_t index, data::SampleSpans to) const override {
    for (const std::span<std::byte> field : to) std::ranges::fill(field, std::byte{0});
    if (wrong_.read && index == 57) wrong_.read(index, to);
  }
  int64_t classes() const override { return wrong_.classes; }
  std::string description() const override { return "mine"; }
  int64_t resident_bytes() const override { return 0; }

 private:
  Wrong wrong_;
  std::vector<data::Field> fields_;
};

template <class T>
auto target_of_57(T value) {
  return [value](int64_t, data::SampleSpans to) { std::memcpy(to[1].data(), &value, sizeof value); };
}

TEST_F(CustomData, CustomSourcesAreChecked) {
  const std::pair<Wrong, const char*> wrong[] = {
      {{.fields = 0}, "mine: expected two fields"},
      {{.fields = 1}, "mine: expected two fields"},
      {{.fields = 3}, "mine: expected two fields"},
      {{.fields = 9}, "mine: expected two fields"},
      {{.size = 0}, "mine: expected at least one sample, got 0"},
      {{.size = -5}, "mine: expected at least one sample, got -5"},
      {{.read = target_of_57<int32_t>(2)}, "mine: expected classes in [0, 2), got 2 for sample 57"},
      {{.read = target_of_57<int32_t>(-1)}, "mine: expected classes in [0, 2), got -1 for sample 57"},
      {{.classes = 1, .target = {DType::f32, {1}}, .read = target_of_57(std::nanf(""))},
       "mine: expected finite numbers to predict, got nan for sample 57"},
      {{.read = [](int64_t, data::SampleSpans) { throw UserError("out of paper"); }}, "out of paper"},
  };
  for (const bool eval : {false, true})
    for (const auto& [w, part] : wrong) {
      TrainOptions options = options_;
      (eval ? options.eval_data : options.train_data) = std::make_shared<WrongSource>(w);
      if (w.target.dtype == DType::f32)
        (eval ? options.train_data : options.eval_data) =
            std::make_shared<WrongSource>(Wrong{.classes = 1, .target = w.target});
      options.out += std::to_string(&w - &wrong[0].first) + (eval ? "eval" : "");
      try {
        train(recipe(), options);
        ADD_FAILURE() << part;
      } catch (const UserError& e) {
        EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
      }
    }
  const auto mask =
      std::make_shared<WrongSource>(Wrong{.target = {DType::u8, {2, 2}}, .read = target_of_57<uint8_t>(2)});
  Recipe r = recipe({"data.source=pixel_arrays", "data.target=mask", "model.family=unet"});
  const Dataset checked = custom_dataset(with_custom_data(r, *mask), mask, nullptr, nullptr);
  std::byte x[4], y[4];
  const std::span<std::byte> spans[] = {x, y};
  EXPECT_NO_THROW(checked.train->read(56, spans));
  EXPECT_THROW(checked.train->read(57, spans), UserError);
}

TEST_F(CustomData, WhateverASourceThrowsComesThrough) {
  options_.train_data =
      std::make_shared<WrongSource>(Wrong{.read = [](int64_t, data::SampleSpans) { throw 42; }});  // NOLINT
  EXPECT_THROW(train(recipe(), options_), int);
}

TEST_F(CustomData, EvaluationDataAloneAreRefused) {
  options_.train_data = nullptr;
  EXPECT_THROW(train(recipe(), options_), UserError);
}

TEST_F(CustomData, MovedPredictorsAreRefused) {
  train(recipe({"train.epochs=1"}), options_);
  Predictor first(options_.out);
  Predictor second(std::move(first));
  std::vector<float> out(2);
  EXPECT_NO_THROW(second(std::span(x_).first(2), out));
  EXPECT_THROW(first(std::span(x_).first(2), out), UserError);  // NOLINT(bugprone-use-after-move)
}

TEST_F(CustomData, AveragesAreAWholeModel) {
  train(recipe({"train.epochs=1", "train.ema=0.9", "optimizer.groups=[{match=\"fc1.weight\",frozen=true}]"}), options_);
  io::PosixFs fs;
  const std::string folder = options_.out + "/checkpoints/step-000000004/";
  const auto model = io::SafetensorsFile::open(fs, folder + kModelFile),
             average = io::SafetensorsFile::open(fs, folder + kAverageFile);
  const auto values = [](const io::SafetensorsFile& file, const io::TensorEntry& t) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes()));
    file.read(t, bytes);
    return bytes;
  };
  ASSERT_EQ(model.tensors().size(), 4u);
  ASSERT_EQ(average.tensors().size(), 4u);
  for (const io::TensorEntry& t : model.tensors()) {
    const io::TensorEntry* other = average.find(t.name);
    ASSERT_TRUE(other) << t.name;
    EXPECT_EQ(values(model, t) == values(average, *other), t.name == "fc1.weight") << t.name;
  }
  // And it is read again.
  options_.resume = true;
  EXPECT_NO_THROW(train(
      recipe({"train.epochs=2", "train.ema=0.9", "optimizer.groups=[{match=\"fc1.weight\",frozen=true}]"}), options_));
  EXPECT_NO_THROW(Predictor{options_.out});
}

void mine(int) {}
bool handles_mine(int signal) {
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler == mine;
}

class OwnHandler {
 public:
  OwnHandler() {
    struct sigaction action = {};
    action.sa_handler = mine;
    sigaction(SIGUSR1, &action, &before_);
  }
  ~OwnHandler() { sigaction(SIGUSR1, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

TEST_F(CustomData, SignalsAreTheProgramsOwnAgainAfterTheLastRun) {
  const OwnHandler handler;
  {
    std::optional<StopSignals> first(std::in_place), second(std::in_place);
    EXPECT_FALSE(handles_mine(SIGUSR1));
    first.reset();
    EXPECT_FALSE(handles_mine(SIGUSR1));
    raise(SIGUSR1);
    EXPECT_EQ(second->received(), SIGUSR1);
  }
  EXPECT_TRUE(handles_mine(SIGUSR1));
  EXPECT_EQ(StopSignals().received(), 0);  // what stopped earlier runs stops no later one

  // In several threads.
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i)
    threads.emplace_back([&, i] {
      TrainOptions options = options_;
      options.out += std::to_string(i);
      EXPECT_EQ(train(recipe({"train.epochs=" + std::to_string(5 + 5 * i)}), options).steps, 4 * (5 + 5 * i));
    });
  for (std::thread& t : threads) t.join();
  EXPECT_TRUE(handles_mine(SIGUSR1));
}

TEST_F(CustomData, SignalsAreLeftAloneOnRequest) {
  const OwnHandler handler;
  int64_t left_alone = 0;
  options_.on_step = [&](int64_t step, Executor&) {
    left_alone += handles_mine(SIGUSR1);
    if (step == 2) raise(SIGUSR1);
  };
  options_.handle_signals = false;
  EXPECT_FALSE(train(recipe({"train.epochs=1"}), options_).preempted);
  EXPECT_EQ(left_alone, 4);
  options_.handle_signals = true;
  options_.out += "-stopped";
  const TrainResult stopped = train(recipe({"train.epochs=1"}), options_);
  EXPECT_TRUE(stopped.preempted);
  EXPECT_EQ(stopped.steps, 2);
}

TEST_F(CustomData, OtherShapesForEvaluationAreRefused) {
  options_.eval_data = data::array_source(x_, {1, 1, 2}, labels_, 2);
  EXPECT_THROW(train(recipe(), options_), UserError);
  options_.eval_data = data::array_source(x_, {2}, data::ArrayLabels::values(std::span(x_).first(64), 1));
  EXPECT_THROW(train(recipe(), options_), UserError);
}

}  // namespace
}  // namespace lathe
