#include <gtest/gtest.h>

#include <cmath>

#include "ir/interpret.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/schedule.h"
#include "nn/step.h"

namespace lathe {
namespace {

TEST(Schedule, WarmsUpThenFollowsItsCourse) {
  ScheduleConfig c{.name = "cosine", .lr = 1.0, .min_lr = 0.1, .warmup_steps = 10, .total_steps = 110};
  EXPECT_DOUBLE_EQ(learning_rate(c, 0), 0.1);
  EXPECT_DOUBLE_EQ(learning_rate(c, 9), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 10), 1.0);
  EXPECT_NEAR(learning_rate(c, 60), 0.55, 1e-12);
  EXPECT_NEAR(learning_rate(c, 110), 0.1, 1e-12);
  EXPECT_NEAR(learning_rate(c, 500), 0.1, 1e-12);
  c.name = "constant";
  EXPECT_DOUBLE_EQ(learning_rate(c, 5), 0.6);
  EXPECT_DOUBLE_EQ(learning_rate(c, 77), 1.0);
  c.name = "step";
  c.step_every = 30;
  c.gamma = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate(c, 29), 1.0);
  EXPECT_DOUBLE_EQ(learning_rate(c, 30), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate(c, 95), 0.125);
  c.name = "nothing";
  EXPECT_THROW(learning_rate(c, 20), UserError);
}

// Runs an optimizer for some steps on the interpreter: gradients given, learning rate 0.1.
std::vector<double> optimize(const OptimizerConfig& config, double w, const std::vector<double>& gradients,
                             const std::vector<bool>& accept) {
  Builder b("optimizer");
  const StateSpec spec{"w", {DType::f32, {1, 1}}, InputKind::param, Init::constant(0), {}};
  const Value p = b.input(spec.type, InputKind::param, "w"), g = b.input(spec.type, InputKind::batch, "g");
  const Value lr = b.input({DType::f32, {}}, InputKind::step, "lr"),
              ok = b.input({DType::b8, {}}, InputKind::step, "ok");
  Optimizer o(b, config, {spec});
  o.update(0, p, g, lr, ok);
  o.finish(ok);
  const Graph graph = b.finish();
  verify(graph, Level::tensor);
  std::map<std::string, double> state{{"w", w}};
  std::vector<double> out;
  for (size_t t = 0; t < gradients.size(); ++t) {
    std::vector<HostTensor> in;
    for (const Input& i : graph.inputs) {
      double v = state[i.name];
      if (i.name == "g") v = gradients[t];
      if (i.name == "lr") v = 0.1;
      if (i.name == "ok") v = accept[t];
      in.push_back({graph.type(i.value), {v}});
    }
    const auto results = interpret(graph, in, Precision::exact);
    for (size_t k = 0; k < results.size(); ++k) state[graph.outputs[k].name] = results[k].data[0];
    out.push_back(state["w"]);
  }
  return out;
}

const std::vector<double> kGradients{0.5, -1.0, 2.0, 0.25};
const std::vector<bool> kAll{true, true, true, true};

TEST(Optimizer, SgdWithMomentumAndNesterov) {
  for (const bool nesterov : {false, true}) {
    double w = 1, m = 0;
    std::vector<double> expected;
    for (const double g : kGradients) {
      m = 0.9 * m + g;
      w = w * (1 - 0.1 * 0.01) - 0.1 * (nesterov ? g + 0.9 * m : m);
      expected.push_back(w);
    }
    const auto actual =
        optimize({.name = "sgd", .momentum = 0.9, .nesterov = nesterov, .weight_decay = 0.01}, 1, kGradients, kAll);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-12);
  }
}

TEST(Optimizer, AdamCountsAcceptedStepsOnly) {
  const auto reference = [](const std::vector<double>& gradients, double decay) {
    double w = 1, m = 0, v = 0;
    std::vector<double> out;
    for (size_t t = 1; t <= gradients.size(); ++t) {
      const double g = gradients[t - 1];
      m = 0.9 * m + 0.1 * g;
      v = 0.999 * v + 0.001 * g * g;
      w *= 1 - 0.1 * decay;
      w -= 0.1 * (m / (1 - std::pow(0.9, t))) / (std::sqrt(v / (1 - std::pow(0.999, t))) + 1e-8);
      out.push_back(w);
    }
    return out;
  };
  for (const double decay : {0.0, 0.1}) {
    const OptimizerConfig c{.name = decay > 0 ? "adamw" : "adam", .weight_decay = decay};
    const auto expected = reference(kGradients, decay);
    const auto actual = optimize(c, 1, kGradients, kAll);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(actual[i], expected[i], 1e-9);
    // A refused step in the middle, with a gradient that is not a number, leaves no trace.
    const auto skipped = optimize(c, 1, {0.5, -1.0, NAN, 2.0, 0.25}, {true, true, false, true, true});
    EXPECT_EQ(skipped[2], skipped[1]);
    EXPECT_NEAR(skipped[4], expected[3], 1e-9);
  }
}

TEST(Optimizer, BiasesDoNotDecay) {
  Builder b("optimizer");
  const StateSpec bias{"b", {DType::f32, {3}}, InputKind::param, Init::constant(0), {}};
  const Value p = b.input(bias.type, InputKind::param, "b"), g = b.input(bias.type, InputKind::batch, "g");
  const Value lr = b.input({DType::f32, {}}, InputKind::step, "lr"),
              ok = b.input({DType::b8, {}}, InputKind::step, "ok");
  Optimizer o(b, {.name = "sgd", .weight_decay = 0.5}, {bias});
  o.update(0, p, g, lr, ok);
  const Graph graph = b.finish();
  const auto r = interpret(
      graph, {{bias.type, {1, 2, 3}}, {bias.type, {0, 0, 0}}, {{DType::f32, {}}, {0.1}}, {{DType::b8, {}}, {1}}},
      Precision::exact);
  EXPECT_EQ(r[0].data, (std::vector<double>{1, 2, 3}));
}

TEST(Steps, EveryFamilyBuildsValidGraphs) {
  for (const ModelFamily& f : model_families()) {
    StepConfig c;
    c.model.family = f.name;
    c.model.hidden = {8};
    c.model.channels = {3, 4};
    c.model.width = 8;
    c.model.heads = 2;
    c.model.layers = 2;
    c.model.sequence = 6;
    c.model.dropout = 0.1;
    c.model.scale = 0.125;
    c.model.layer_list = {{"dense", {{"out", int64_t{0}}}}};
    c.optimizer = {.name = "adamw", .weight_decay = 0.1};
    c.clip_norm = 1;
    const TensorType sample =
        f.input == InputForm::tokens ? TensorType{DType::i32, {6}} : TensorType{DType::u8, {8, 8, 1}};
    for (const Step& s : {train_step(c, sample, 4), accumulate_step(c, sample, 4), update_step(c, sample),
                          eval_step(c, sample, 4), predict_step(c, sample, 1)}) {
      verify(s.graph, Level::tensor, s.graph.name);
      // Every state input has a spec, and the other way round.
      size_t state = 0;
      for (const Input& in : s.graph.inputs) state += is_state(in.kind);
      EXPECT_EQ(state, s.state.size()) << f.name << " " << s.graph.name;
    }
  }
}

TEST(Steps, PerChannelNormalisation) {
  StepConfig c;
  c.model = {.family = "mlp", .classes = 2, .hidden = {}, .mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.25, 1}};
  const Step s = predict_step(c, {DType::u8, {1, 1, 3}}, 1);
  std::vector<HostTensor> in;
  for (const Input& i : s.graph.inputs) {
    if (i.name == "x")
      in.push_back({s.graph.type(i.value), {255, 0, 51}});
    else if (i.name == "fc1.weight")
      in.push_back({s.graph.type(i.value), {1, 10, 100, 0, 0, 0}});
    else
      in.push_back({s.graph.type(i.value), {0, 0}});
  }
  const auto r = interpret(s.graph, in, Precision::exact);
  EXPECT_NEAR(r[0].data[0], (1 - 0.1) / 0.5 + 10 * (0 - 0.2) / 0.25 + 100 * (0.2 - 0.3) / 1, 1e-9);
  c.model.mean = {0.1, 0.2};
  EXPECT_THROW(predict_step(c, {DType::u8, {1, 1, 3}}, 1), UserError);
}

// Files hold the weights of a flattened image in PyTorch's (channel, row, column) order, moments included.
TEST(Steps, DenseLayersOnImagesHaveAFileLayout) {
  for (const char* family : {"mlp", "cnn"}) {
    StepConfig c;
    c.model = {.family = family, .classes = 2, .hidden = {5}, .channels = {4}};
    c.optimizer.momentum = 0.9;
    const bool cnn = c.model.family == "cnn";
    const Ints image = cnn ? Ints{2, 3, 4} : Ints{4, 6, 3};
    const int64_t out = cnn ? c.model.dense : 5;
    int seen = 0;
    for (const StateSpec& s : train_step(c, {DType::u8, {4, 6, 3}}, 1).state) {
      if (s.name != "fc1.weight" && s.name != "fc1.weight.momentum_buffer") continue;
      EXPECT_EQ(s.file.view, (Ints{out, image[0], image[1], image[2]})) << family << " " << s.name;
      EXPECT_EQ(s.file.perm, (Ints{0, 3, 1, 2})) << family << " " << s.name;
      EXPECT_EQ(s.file.shape, (Ints{out, image[0] * image[1] * image[2]})) << family << " " << s.name;
      ++seen;
    }
    EXPECT_EQ(seen, 2) << family;
  }
}

}  // namespace
}  // namespace lathe
