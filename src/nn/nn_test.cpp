#include <gtest/gtest.h>

#include <cmath>

#include "ir/interpret.h"
#include "ir/print.h"
#include "ir/verify.h"
#include "nn/step.h"

namespace lathe {
namespace {

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
