// Training on arrays, and predicting with what came of it.
#include "train/own_data.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>

#include "data/arrays.h"
#include "train/predictor.h"

namespace lathe {
namespace {

class OwnData : public testing::Test {
 protected:
  OwnData() {
    char name[] = "/tmp/lathe-own-XXXXXX";
    dir_ = mkdtemp(name);
    for (size_t i = 0; i < labels_.size(); ++i) {
      const auto at = static_cast<float>(i % 16) / 8 - 1;
      x_[2 * i] = at;
      x_[2 * i + 1] = 1;
      labels_[i] = at > 0;
    }
    options_.out = dir_ + "/run";
    options_.quiet = true;
    options_.train_data = data::array_source(x_, {2}, labels_, 2);
    options_.eval_data = options_.train_data;
  }
  ~OwnData() override { std::filesystem::remove_all(dir_); }

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

TEST_F(OwnData, TrainedAndPredicted) {
  const TrainResult result = train(recipe(), options_);
  EXPECT_GT(result.accuracy, 0.95);
  EXPECT_EQ(load_run_recipe(options_.out, {}).data.source, "arrays");

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

TEST_F(OwnData, HeldOutOrNotEvaluated) {
  options_.eval_data = nullptr;
  const Dataset part =
      own_dataset(with_own_data(recipe({"data.validation=0.25"}), *options_.train_data), options_.train_data, nullptr);
  EXPECT_EQ(part.spec.train, 48);
  EXPECT_EQ(part.spec.eval, 16);
  const Dataset whole = own_dataset(with_own_data(recipe(), *options_.train_data), options_.train_data, nullptr);
  EXPECT_EQ(whole.spec.train, 64);
  EXPECT_EQ(whole.eval, nullptr);
}

TEST_F(OwnData, ResumedWithTheSamePassesOnly) {
  options_.compile.passes.added = {{"fuse", {"mine", [](Graph g, const PassContext&) { return g; }, Level::tensor}}};
  train(recipe({"train.epochs=1"}), options_);
  options_.resume = true;
  EXPECT_NO_THROW(train(recipe({"train.epochs=2"}), options_));
  options_.compile.passes.added.clear();
  EXPECT_THROW(train(recipe({"train.epochs=3"}), options_), UserError);
}

TEST_F(OwnData, OtherShapesForEvaluationAreRefused) {
  options_.eval_data = data::array_source(x_, {1, 1, 2}, labels_, 2);
  EXPECT_THROW(train(recipe(), options_), UserError);
}

}  // namespace
}  // namespace lathe
