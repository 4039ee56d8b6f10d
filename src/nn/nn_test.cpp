#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ir/interpret.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/layer_types/layer_type.h"
#include "nn/step/step.h"
#include "ops/matmul.h"
#include "ops/registry.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

TEST(Steps, EveryFamilyBuildsValidGraphs) {
  for (const ModelFamily& f : model_families()) {
    if (is_custom_family(f.name())) continue;
    StepConfig c;
    c.model = ModelConfig(f.name());
    Ints image{8, 8, 1};
    if (f.info.name == "layers") c.model.params.set("layers", Tables{make_layer_params("dense")});
    c.model.params = f.shrink(c.model.params, image)[0];
    if (f.schema().find("dropout")) c.model.params.set("dropout", 0.1);
    c.optimizer = {.name = "adamw", .weight_decay = 0.1};
    const TensorType sample = token_input(c.model) ? TensorType{DType::i32, {6}} : TensorType{DType::u8, Shape(image)};
    for (const StepSet& s : {train_step(c, sample, 4), eval_step(c, sample, 4), predict_step(c, sample, 1)}) {
      verify(s, Level::tensor, s.graphs[0].name);
      // parse(print(set)) is the set.
      const std::string text = print(s);
      EXPECT_EQ(print(parse_step_set(text, registry())), text) << f.name() << " " << s.graphs[0].name;
      EXPECT_TRUE(structurally_equal(parse_step_set(text, registry()), s)) << f.name();
    }
  }
}

TEST(Steps, PerChannelNormalisation) {
  StepConfig c;
  c.model = ModelConfig("mlp", {{"hidden", Ints{}}}, {.classes = 2, .mean = {0.1, 0.2, 0.3}, .std = {0.5, 0.25, 1}});
  const StepSet s = predict_step(c, {DType::u8, {1, 1, 3}}, 1);
  std::vector<HostTensor> in;
  for (const Input& i : s.graphs[0].inputs) {
    if (i.name == "x")
      in.push_back({s.graphs[0].type(i.value), {255, 0, 51}});
    else if (i.name == "fc1.weight")
      in.push_back({s.graphs[0].type(i.value), {1, 10, 100, 0, 0, 0}});
    else
      in.push_back({s.graphs[0].type(i.value), {0, 0}});
  }
  const auto r = interpret(s.graphs[0], in, Precision::exact);
  EXPECT_NEAR(r[0].data[0], (1 - 0.1) / 0.5 + 10 * (0 - 0.2) / 0.25 + 100 * (0.2 - 0.3) / 1, 1e-9);
  c.model.mean = {0.1, 0.2};
  EXPECT_THROW(predict_step(c, {DType::u8, {1, 1, 3}}, 1), UserError);
}

TEST(Net, TheSameNameIsTheSameWeight) {
  Builder b("g");
  Net net(b, Mode::train);
  const Value w = net.param("w", {2, 3}, Init::normal(0.1)), m = net.buffer("m", {3}, Init::constant(0));
  EXPECT_EQ(net.param("w", {2, 3}, Init::normal(0.1)).id(), w.id());
  EXPECT_EQ(net.buffer("m", {3}, Init::constant(0)).id(), m.id());
  EXPECT_EQ(net.specs().size(), 2u);
  EXPECT_EQ(net.params().size(), 1u);
  EXPECT_THROW(net.param("w", {3, 2}, Init::normal(0.1)), UserError);
  EXPECT_THROW(net.param("w", {2, 3}, Init::normal(0.2)), UserError);
  EXPECT_THROW(net.buffer("w", {2, 3}, Init::normal(0.1)), UserError);
}

// Steps of a custom family; `build` decides what it gives.
std::vector<StepSet> steps_of(const char* name, Value (*build)(Net&, const ModelConfig&, Value)) {
  register_family({.info = {.name = name}, .build = build});
  StepConfig c;
  c.model = ModelConfig(name, {}, {.classes = 2});
  const TensorType sample{DType::f32, {1, 2, 1}};
  return {train_step(c, sample, 4), eval_step(c, sample, 4)};
}

Value flat(Value x) { return reshape(x, {x.dim(0), 2}); }

TEST(Net, SharedWeightsAreOneStateOfAStep) {
  const auto tied = [](Net& n, const ModelConfig&, Value x) {
    const Value w = n.param("w", {2, 2}, Init::normal(1));
    return matmul(matmul(flat(x), w), n.param("w", {2, 2}, Init::normal(1)));
  };
  for (const StepSet& s : steps_of("tied", tied)) {
    verify(s, Level::tensor, s.graphs[0].name);
    EXPECT_EQ(std::ranges::count(s.graphs[0].inputs, "w", &Input::name), 1);
  }
}

TEST(Net, FamiliesWithoutAUsableResultAreRefused) {
  EXPECT_THROW(steps_of("no_params", [](Net&, const ModelConfig&, Value x) { return flat(x); }), UserError);
  EXPECT_THROW(steps_of("nothing", [](Net&, const ModelConfig&, Value) { return Value(); }), UserError);
  EXPECT_THROW(steps_of("other",
                        [](Net&, const ModelConfig&, Value x) {
                          static Builder other;
                          return other.input({DType::f32, {x.dim(0), 2}}, InputKind::batch, "x");
                        }),
               UserError);
}

// Files hold the weights of a flattened image in PyTorch's (channel, row, column) order, moments included.
TEST(Steps, DenseLayersOnImagesHaveAFileLayout) {
  for (const char* family : {"mlp", "cnn"}) {
    StepConfig c;
    const bool cnn = std::string(family) == "cnn";
    c.model = ModelConfig(family,
                          {cnn ? std::pair("channels", ParamValue(Ints{4})) : std::pair("hidden", ParamValue(Ints{5}))},
                          {.classes = 2});
    c.optimizer.momentum = 0.9;
    const Ints image = cnn ? Ints{2, 3, 4} : Ints{4, 6, 3};
    const int64_t out = cnn ? 128 : 5;
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
