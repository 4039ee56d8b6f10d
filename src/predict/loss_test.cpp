#include "nn/step/loss.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <map>

#include "backend/backend.h"
#include "data/arrays.h"
#include "ir/interpret.h"
#include "loop/trainer.h"
#include "nn/layers.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/reshape.h"
#include "passes/precision.h"
#include "predict/predictor.h"
#include "run/run_graph.h"

namespace lathe {
namespace {

// The loss of one step from logits 1 and 2.
double loss_of_step(StepConfig c, const std::vector<double>& target) {
  c.model = ModelConfig("mlp", {{"hidden", Ints{}}}, {.classes = 2});
  const StepSet s = train_step(c, {DType::f32, {1, 1, 2}}, 1);
  std::vector<HostTensor> in;
  for (const Input& i : s.graphs[0].inputs) {
    const TensorType t = s.graphs[0].type(i.value);
    HostTensor value{t, std::vector<double>(static_cast<size_t>(t.numel()))};
    if (i.name == "x") value.data = {1, 2};
    if (i.name == "y") value.data = target;
    if (i.name == "fc1.weight") value.data = {1, 0, 0, 1};
    if (i.name == "loss_weight") value.data = {1};
    in.push_back(std::move(value));
  }
  const Graph g = run_pipeline(s.graphs[0], {find_backend("ref").target({})});
  const auto results = interpret(g, in, Precision::exact);
  for (size_t i = 0; i < g.outputs.size(); ++i)
    if (g.outputs[i].name == "loss") return results[i].data[0];
  ADD_FAILURE() << "no loss";
  return 0;
}

TEST(Steps, TrainWithTheLossThatIsAskedFor) {
  const double p = 1 / (1 + std::exp(1.0)), entropy = -std::log(p);
  StepConfig c;
  EXPECT_NEAR(loss_of_step(c, {0}), entropy, 1e-9);
  c.loss = LossSpec("focal");
  EXPECT_NEAR(loss_of_step(c, {0}), std::pow(1 - p, 2) * entropy, 1e-9);
  c.loss.params.set("focal_gamma", 0.5);
  EXPECT_NEAR(loss_of_step(c, {0}), std::sqrt(1 - p) * entropy, 1e-9);
  c.task = Task::regress;
  c.loss = LossSpec("mse");
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 0.25 + 9, 1e-9);
  c.loss = LossSpec("l1");
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 0.5 + 3, 1e-9);
  c.loss = LossSpec("huber");
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 0.125 + (3 - 0.5), 1e-9);
  c.loss.params.set("huber_delta", 2);
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 0.125 + 2 * (3 - 1), 1e-9);
  c.loss = LossSpec("cosine");  // for each of two numbers
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 2 * (1 - 10.5 / std::sqrt(5 * 25.25)), 1e-6);
  c.task = Task::classify;
  c.loss = LossSpec("bce");
  const auto yes = [](double x) { return std::log1p(std::exp(-x)); };
  EXPECT_NEAR(loss_of_step(c, {0}), (yes(1) + yes(-2)) / 2, 1e-9);
  c.loss = LossSpec("kl");
  EXPECT_NEAR(loss_of_step(c, {0}), entropy, 1e-9);
  c.loss.params.set("label_smoothing", 0.2);  // 0.9 and 0.1
  EXPECT_NEAR(loss_of_step(c, {0}), 0.9 * std::log(0.9 / p) + 0.1 * std::log(0.1 / (1 - p)), 1e-9);
  // "auto" hands its settings on.
  c.loss = LossSpec("auto", {{"label_smoothing", 0.2}});
  EXPECT_NEAR(loss_of_step(c, {0}), -0.9 * std::log(p) - 0.1 * std::log(1 - p), 1e-9);
}

// Four places on a circle: 0, 90, 180 and 270 degrees, at lengths that do not count.
TEST(Losses, OfEmbeddings) {
  const double root = std::sqrt(2.0);
  StepConfig c;
  c.task = Task::embed;
  double margin = 0.8;
  const auto run = [&](const char* loss, const std::vector<double>& labels, const char* device) {
    Builder b("losses");
    const Value y = b.input({DType::f32, {4, 2}}, InputKind::batch, "y");
    const Value target = b.input({DType::i32, {4}}, InputKind::batch, "target");
    c.loss = LossSpec(loss, {{"margin", margin}});
    b.output(losses_of(c, y, target), OutputKind::result, "losses");
    b.output(nearest_hits(y, target), OutputKind::result, "hits");
    const Backend& backend = find_backend(device);
    const Graph g = run_pipeline(b.finish(), {backend.target({})});
    const std::vector<HostTensor> in{{{DType::f32, {4, 2}}, {2, 0, 0, 1, -3, 0, 0, -1}}, {{DType::i32, {4}}, labels}};
    return run_graph(backend, {.threads = 1}, g, in);
  };
  for (const char* device : {"ref", "cpu"}) {
    SCOPED_TRACE(device);
    // 0 and 90 degrees are one class, 180 and 270 the other: of one neighbour it lies as far as of its own.
    const auto halves = run("triplet", {0, 0, 1, 1}, device);
    for (const double v : halves[0].data) EXPECT_NEAR(v, (0.8 + root - 2 + 0.8) / 2, 1e-5);
    // Opposite places are one class: the nearest is always of the other.
    const auto crossed = run("triplet", {0, 1, 0, 1}, device);
    for (const double v : crossed[0].data) EXPECT_NEAR(v, 2 - root + 0.8, 1e-5);
    EXPECT_EQ(crossed[1].data, (std::vector<double>{0, 0, 0, 0}));
    // A class of one has none of its own, the others have two.
    const auto three = run("triplet", {0, 0, 0, 1}, device);
    EXPECT_NEAR(three[0].data[0], (0.8 + 2 - root + 0.8) / 2, 1e-5);
    EXPECT_NEAR(three[0].data[1], root - 2 + 0.8, 1e-5);
    EXPECT_EQ(three[0].data[3], 0);
    EXPECT_EQ(three[1].data[1], 1);
    EXPECT_EQ(run("triplet", {0, 0, 0, 0}, device)[0].data, (std::vector<double>{0, 0, 0, 0}));
    margin = 1.5;
    const double lacking = (1.5 - root) * (1.5 - root);
    EXPECT_NEAR(run("contrastive", {0, 0, 1, 1}, device)[0].data[0], (2 + lacking + 0) / 2 / 3, 1e-5);
    margin = 0.8;
  }
}

// More triplets than are computed at once. Those of samples in the same place have no loss.
TEST(Losses, OfManyTriplets) {
  constexpr int64_t kRows = 200;
  Builder b("losses");
  const Value y = b.input({DType::f32, {kRows, 2}}, InputKind::batch, "y");
  const Value target = b.input({DType::i32, {kRows}}, InputKind::batch, "target");
  StepConfig c;
  c.task = Task::embed;
  c.loss = LossSpec("triplet", {{"margin", 0.8}});
  b.output(losses_of(c, y, target), OutputKind::result, "losses");
  const Backend& backend = find_backend("cpu");
  std::vector<HostTensor> in{{y.type(), {}}, {target.type(), {}}};
  for (int64_t i = 0; i < kRows / 4; ++i) {
    in[0].data.insert(in[0].data.end(), {2, 0, 0, 1, -3, 0, 0, -1});
    in[1].data.insert(in[1].data.end(), {0, 1, 0, 1});
  }
  const Graph g = run_pipeline(b.finish(), {backend.target({})});
  const auto losses = run_graph(backend, {.threads = 1}, g, in)[0].data;
  ASSERT_EQ(losses.size(), static_cast<size_t>(kRows));
  // 50 of the 99 others of a class lie opposite.
  for (const double v : losses) EXPECT_NEAR(v, (2 - std::sqrt(2.0) + 0.8) * 50 / 99, 1e-4);
}

// Weights and samples are whole numbers, so that the places are the same in 16 bits: then so is all that is said of
// them.
TEST(Losses, OfEmbeddingsAreThoseOfF32In16Bits) {
  constexpr int64_t kRows = 60, kColumns = 6, kWidth = 4;
  StepConfig c;
  c.task = Task::embed;
  c.model = ModelConfig("mlp", {{"hidden", Ints{}}}, {.classes = kWidth});
  const Backend& backend = find_backend("cpu");
  const auto metrics = [&](DType precision) {
    const StepSet s = eval_step(c, {DType::f32, {1, 1, kColumns}}, kRows);
    const Graph g = run_pipeline(
        s.graphs[0], {backend.target({}), PassOptions().set(PrecisionOptions{std::string(to_string(precision))})});
    std::vector<HostTensor> in;
    for (const Input& i : g.inputs) {
      HostTensor value{g.type(i.value), std::vector<double>(static_cast<size_t>(g.type(i.value).numel()))};
      for (size_t k = 0; k < value.data.size(); ++k) {
        // Samples of a class lie close together, but for some with another's label.
        const size_t sample = k / kColumns, column = k % kColumns;
        if (i.name == "x")
          value.data[k] =
              static_cast<double>((sample % 5 * (2 * column + 1) + (column == 0 ? sample / 5 % 2 : 0)) % 9) - 4;
        if (i.name == "y") value.data[k] = static_cast<double>((k + (k % 12 == 0)) % 5);
        if (i.name == "fc1.weight") value.data[k] = static_cast<double>((k * 7 + k / 5) % 3) - 1;
      }
      in.push_back(std::move(value));
    }
    EXPECT_EQ(std::ranges::any_of(g.types, [](const TensorType& t) { return t.dtype == DType::bf16; }),
              precision == DType::bf16);
    std::map<std::string, double> out;
    const auto results = run_graph(backend, {.threads = 1}, g, in);
    for (size_t i = 0; i < g.outputs.size(); ++i) out[g.outputs[i].name] = results[i].data[0];
    return out;
  };
  for (const char* loss : {"triplet", "contrastive"}) {
    c.loss = LossSpec(loss);
    const auto wide = metrics(DType::f32), narrow = metrics(DType::bf16);
    EXPECT_EQ(narrow, wide);
    EXPECT_GT(wide.at("correct"), 0);
    EXPECT_LT(wide.at("correct"), kRows);
    EXPECT_GT(wide.at("loss_sum"), 0);
  }
}

// Each loss through its recipe, on `ref` and `cpu`.
const Sets kNumbers{"data.source=arrays", "data.target=value"};

class LossTraining : public testing::Test {
 protected:
  LossTraining() {
    char name[] = "/tmp/lathe-loss-XXXXXX";
    dir_ = mkdtemp(name);
    for (size_t i = 0; i < kSamples; ++i) {
      const double at = static_cast<double>(i % 16) / 8 - 1;
      x_[2 * i] = static_cast<float>(at);
      x_[2 * i + 1] = 1;
      labels_[i] = at < -0.4 ? 0 : at < 0.3 ? 1 : 2;
      values_[2 * i] = static_cast<float>(std::sin(3 * at));
      values_[2 * i + 1] = static_cast<float>(std::cos(3 * at));
    }
  }
  ~LossTraining() override { std::filesystem::remove_all(dir_); }

  TrainResult train_with(const std::string& loss, const data::ArrayLabels& target, const Sets& more = {}) {
    TrainOptions o;
    o.out = dir_ + "/run" + std::to_string(++runs_);
    o.train_data = o.eval_data = data::array_source(x_, {2}, target);
    Sets sets{"train.loss=" + loss};
    sets.insert(sets.end(), more.begin(), more.end());
    out_ = o.out;
    return train(parse_recipe(R"(
      model = { family = "mlp", hidden = [16] }
      optimizer = { name = "adam", lr = 0.02 }
      train = { epochs = 25, batch_size = 16, eval_every = 0 }
      checkpoint.every_epochs = 0
      device = { name = "cpu", threads = 1 }
    )",
                              "loss.toml", sets),
                 o);
  }

  void expect_falls(const std::string& loss, const data::ArrayLabels& target, double to, const Sets& more = {}) {
    SCOPED_TRACE(loss);
    Sets sets = more;
    sets.insert(sets.end(), {"train.steps=1", "optimizer.lr=1e-9"});
    const double start = train_with(loss, target, sets).eval_loss;
    for (const char* device : {"cpu", "ref"}) {
      sets = more;
      sets.push_back(std::string("device.name=") + device);
      const TrainResult r = train_with(loss, target, sets);
      EXPECT_LT(r.eval_loss, to * start) << device << " from " << start;
      EXPECT_LT(r.loss, to * start) << device;
    }
  }

  static constexpr size_t kSamples = 64;
  std::string dir_, out_;
  int runs_ = 0;
  std::vector<float> x_ = std::vector<float>(2 * kSamples), values_ = std::vector<float>(2 * kSamples);
  std::vector<int32_t> labels_ = std::vector<int32_t>(kSamples);
};

TEST_F(LossTraining, OfClassesFalls) {
  const auto classes = data::ArrayLabels::classes(labels_, 3);
  expect_falls("bce", classes, 0.5);
  expect_falls("kl", classes, 0.6, {"train.label_smoothing=0.1"});
}

TEST_F(LossTraining, OfNumbersFalls) { expect_falls("cosine", data::ArrayLabels::values(values_, 2), 0.3, kNumbers); }

TEST_F(LossTraining, OfEmbeddingsBringsClassesTogether) {
  const auto classes = data::ArrayLabels::classes(labels_, 3);
  expect_falls("triplet", classes, 0.6, {"train.embedding=4"});
  expect_falls("contrastive", classes, 0.6, {"train.embedding=4", "train.margin=1"});
  Predictor net(out_);
  EXPECT_EQ(net.outputs(), 4);
  EXPECT_GT(train_with("triplet", classes, {"train.embedding=4"}).accuracy, 0.95);
}

TEST_F(LossTraining, ThatDoesNotFitTheTargetIsRefused) {
  const auto error = [&](const std::string& loss, const data::ArrayLabels& target, const Sets& sets) -> std::string {
    try {
      train_with(loss, target, sets);
    } catch (const UserError& e) {
      return e.what();
    }
    return "no error";
  };
  EXPECT_NE(error("cosine", data::ArrayLabels::classes(labels_, 3), {})
                .find("expected \"cross_entropy\", \"focal\", \"bce\", "
                      "\"kl\", \"triplet\", \"contrastive\" or \"auto\" for data.target = \"class\", got \"cosine\""),
            std::string::npos);
  EXPECT_NE(error("cosine", data::ArrayLabels::values(std::span(values_).first(kSamples), 1), kNumbers)
                .find("at least 2 numbers"),
            std::string::npos);
}

// The quantile that so many of ten lie below.
struct QuantileLine {
  struct Params {
    double part = 0.5;
    template <class F>
    static void fields(F&& f) {
      f("part", &Params::part, allow::range(0.01, 0.99), "that lies below");
    }
  };
  static constexpr FamilyInfo info{.name = "quantile", .doc = "a line below which a part lies"};
  static Value build(Net& net, const Params&, const ModelInputs& in, Value x) {
    return linear(net, "out", reshape(x, {x.dim(0), x.shape().numel() / x.dim(0)}), in.classes);
  }
  static Value loss(Net&, const Params& p, const ModelInputs&, Value y, Value target) {
    const Value above = target - y;
    return maximum(above * p.part, above * (p.part - 1));
  }
};

// In a process of its own: families stay.
TEST_F(LossTraining, OfACustomFamilyIsTheDefault) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  for (size_t i = 0; i < kSamples; ++i) x_[2 * i] = 0, values_[i] = static_cast<float>(i);
  // The answer, and how far the evaluation's rmse is from what follows from it.
  const auto answer = [&](const char* loss) {
    Sets sets = kNumbers;
    sets.insert(sets.end(), {"model.family=quantile", "model.part=0.9", "train.epochs=40", "optimizer.lr=0.05"});
    const TrainResult r = train_with(loss, data::ArrayLabels::values(std::span(values_).first(kSamples), 1), sets);
    std::vector<float> y(1);
    Predictor net(out_);
    net(std::span<const float>(x_).first(2), y);
    return std::pair<double, double>(y[0], r.test->rmse.value() - std::hypot(std::sqrt(341.25), y[0] - 31.5));
  };
  const auto run = [&] {
    register_family(make_family<QuantileLine>());
    const auto [own, own_error] = answer("auto");
    const auto [mean, mean_error] = answer("mse");
    std::fprintf(stderr, "%g (%g), %g (%g)\n", own, own_error, mean, mean_error);
    const bool ok =
        std::abs(own - 57) < 5 && std::abs(mean - 31.5) < 3 && std::abs(own_error) < 0.5 && std::abs(mean_error) < 0.5;
    _exit(ok ? 0 : 1);
  };
  EXPECT_EXIT(run(), testing::ExitedWithCode(0), "");
}

// Whatever is trained by, where evaluation measures the cross entropy.
TEST(Perplexity, IsThatOfTheEntropyOfTokens) {
  const std::string out =
      std::filesystem::temp_directory_path() / ("lathe_perplexity_test_" + std::to_string(::getpid()));
  for (const char* loss : {"auto", "focal", "bce"}) {
    std::filesystem::remove_all(out);
    const Recipe r = parse_recipe(
        "[data]\nsource = \"text\"\ntrain_samples = 16\ntest_samples = 8\n[model]\nfamily = \"gpt\"\nlayers = 1\n"
        "width = 16\nheads = 2\nsequence = 8\nvocab = 128\n[train]\nsteps = 1\nbatch_size = 8",
        "text.toml", {std::string("train.loss=") + loss});
    TrainOptions o;
    o.out = out;
    const TrainResult t = train(r, o);
    ASSERT_TRUE(t.test);
    if (std::string(loss) == "bce")
      EXPECT_FALSE(t.test->perplexity);
    else
      EXPECT_DOUBLE_EQ(t.test->perplexity.value(), std::exp(t.test->loss)) << loss;
  }
  std::filesystem::remove_all(out);
}

}  // namespace
}  // namespace lathe
