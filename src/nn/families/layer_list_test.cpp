#include "nn/families/layer_list.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "nn/step/step.h"

namespace lathe {
namespace {

using Keys = std::vector<std::pair<std::string, LayerValue>>;

LayerSpec layer(const std::string& type, Keys keys = {}) { return {type, std::move(keys)}; }
LayerValue word(const char* s) { return std::string(s); }
LayerValue whole(int64_t i) { return i; }

ModelConfig net(std::vector<LayerSpec> list, int64_t classes = 10) {
  ModelConfig c;
  c.family = "layers";
  c.classes = classes;
  c.layer_list = std::move(list);
  return c;
}

int64_t weights_in(const ModelConfig& model, const TensorType& sample) {
  StepConfig c;
  c.model = model;
  int64_t n = 0;
  for (const StateSpec& s : predict_step(c, sample, 2).state)
    if (s.kind == InputKind::param) n += s.type.numel();
  return n;
}

const TensorType kFashion{DType::u8, {28, 28, 1}};

std::string error_of(std::vector<LayerSpec> list, size_t index, const TensorType& sample = kFashion) {
  try {
    weights_in(net(std::move(list)), sample);
  } catch (const LayerError& e) {
    EXPECT_EQ(e.index, index) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(LayerList, EveryTypeBuilds) {
  const auto name = [](const char* n) { return std::pair<std::string, LayerValue>("name", word(n)); };
  const std::vector<LayerSpec> image{
      layer("conv", {{"out", whole(8)}, {"stride", whole(2)}, name("stem")}),
      layer("batch_norm", {{"activation", word("relu")}, name("first")}),
      layer("conv", {{"out", whole(8)}, {"groups", whole(8)}, {"bias", false}}),
      layer("group_norm", {{"groups", whole(2)}, {"add", word("first")}, {"activation", word("relu6")}}),
      layer("max_pool"),
      layer("avg_pool", {{"kernel", whole(3)}, {"stride", whole(2)}, {"padding", word("same")}}),
      layer("sequence"),
      layer("positions"),
      layer("rms_norm", {name("normed")}),
      layer("attention", {{"heads", whole(4)}, {"kv_heads", whole(2)}, {"rotary", true}, {"add", word("normed")}}),
      layer("transformer", {{"heads", whole(2)}, {"dropout", 0.1}}),
      layer("layer_norm"),
      layer("global_pool", {{"kind", word("max")}, name("pooled")}),
      layer("dense", {{"out", whole(8)}, {"add", word("pooled")}}),
      layer("dropout", {{"rate", 0.5}}),
      layer("activation", {{"function", word("tanh")}}),
      layer("flatten"),
      layer("dense", {{"out", whole(0)}}),
  };
  const std::vector<LayerSpec> picture{
      layer("conv", {{"out", whole(4)}, name("a")}),
      layer("adaptive_pool", {{"height", whole(7)}, {"width", whole(14)}}),
      layer("resize", {{"height", whole(14)}, {"width", whole(14)}, {"kind", word("bilinear")}}),
      layer("conv_transpose", {{"out", whole(16)}, {"groups", whole(2)}}),
      layer("instance_norm"),
      layer("pixel_shuffle"),
      layer("pixel_unshuffle"),
      layer("concat", {{"with", word("a")}}),
      layer("prelu"),
      layer("conv", {{"out", whole(0)}}),
  };
  const std::vector<LayerSpec> series{layer("sequence", {{"of", word("rows")}}), layer("conv1d", {{"out", whole(6)}}),
                                      layer("gru", {{"width", whole(4)}, {"both_ways", true}}),
                                      layer("lstm", {{"width", whole(4)}, {"states", word("last")}}),
                                      layer("dense", {{"out", whole(0)}})};
  for (const LayerSpec& s : image) EXPECT_TRUE(check_layer(s).empty()) << s.type << ": " << check_layer(s)[0].message;
  StepConfig c;
  c.model = net(image);
  const StepSet train = train_step(c, kFashion, 4);
  EXPECT_GT(train.graphs[0].nodes.size(), 50u);
  c.model = net(series);
  EXPECT_GT(train_step(c, kFashion, 4).graphs[0].nodes.size(), 50u);
  c.model = net(picture, 2);
  c.model.pixels = true;
  c.task = Task::segment;
  const Graph mask = predict_step(c, kFashion, 3).graphs[0];
  EXPECT_EQ(mask.type(mask.outputs[0].value).shape, (Shape{3 * 28 * 28, 2}));
  c.task = Task::classify;
  const std::vector<LayerSpec> text{layer("embedding", {{"width", whole(16)}}), layer("positions"),
                                    layer("transformer", {{"causal", true}}), layer("dense", {{"out", whole(0)}})};
  c.model = net(text, 100);
  EXPECT_EQ(input_form(c.model), InputForm::tokens);
  EXPECT_EQ(weights_in(c.model, {DType::i32, {12}}), 100 * 16 + 12 * 16 + (16 * 48 + 48 + 16 * 16 + 16) + 4 * 16 +
                                                         (16 * 64 + 64 + 64 * 16 + 16) + 16 * 100 + 100);
  // Each type of the table was used.
  for (const LayerType& t : layer_types()) {
    const auto is = [&](const LayerSpec& s) { return s.type == t.name; };
    const auto used = [&](const std::vector<LayerSpec>& list) { return std::any_of(list.begin(), list.end(), is); };
    EXPECT_TRUE(used(image) || used(text) || used(picture) || used(series)) << t.name;
  }
}

// The shape of what a list makes of a [2, 12, 10, 8] image, as the error of a last layer that does not fit shows it.
TEST(LayerList, ShapesOfLayers) {
  const auto shape = [](std::vector<LayerSpec> list) {
    const std::string error = error_of(list, list.size() - 1, {DType::f32, {12, 10, 8}});
    return error.substr(error.find("got ") + 4);
  };
  EXPECT_EQ(shape({layer("conv_transpose", {{"out", whole(5)}})}), "[N, 24, 20, 5]");
  EXPECT_EQ(shape({layer("conv_transpose",
                         {{"out", whole(5)}, {"kernel", whole(3)}, {"padding", whole(1)}, {"extra", whole(1)}})}),
            "[N, 24, 20, 5]");
  EXPECT_EQ(shape({layer("pixel_shuffle")}), "[N, 24, 20, 2]");
  EXPECT_EQ(shape({layer("pixel_unshuffle")}), "[N, 6, 5, 32]");
  EXPECT_EQ(shape({layer("resize", {{"factor", whole(3)}})}), "[N, 36, 30, 8]");
  EXPECT_EQ(shape({layer("resize", {{"height", whole(7)}})}), "[N, 7, 20, 8]");
  EXPECT_EQ(shape({layer("adaptive_pool", {{"width", whole(3)}})}), "[N, 1, 3, 8]");
  const LayerSpec rows = layer("sequence", {{"of", word("rows")}}),
                  a = layer("conv", {{"out", whole(3)}, {"name", word("a")}});
  EXPECT_EQ(shape({rows}), "[N, 12, 80]");
  EXPECT_EQ(shape({rows, layer("conv1d", {{"out", whole(5)}, {"stride", whole(2)}})}), "[N, 6, 5]");
  EXPECT_EQ(shape({rows, layer("conv1d", {{"out", whole(5)}, {"dilation", whole(3)}, {"causal", true}})}),
            "[N, 12, 5]");
  EXPECT_EQ(shape({rows, layer("gru", {{"width", whole(5)}})}), "[N, 12, 5]");
  EXPECT_EQ(shape({rows, layer("lstm", {{"width", whole(6)}, {"states", word("last")}, {"both_ways", true}})}),
            "[N, 12]");
  EXPECT_EQ(shape({a, layer("conv", {{"out", whole(4)}}), layer("concat", {{"with", word("a")}})}), "[N, 12, 10, 7]");
}

TEST(LayerList, NewLayersThatDoNotFit) {
  const LayerSpec head = layer("dense", {{"out", whole(0)}});
  EXPECT_EQ(error_of({layer("conv", {{"out", whole(4)}, {"name", word("a")}}), layer("max_pool"),
                      layer("concat", {{"with", word("a")}}), head},
                     2),
            "with: expected an output that differs from [N, 14, 14, 4] in the last number alone, got \"a\" of "
            "[N, 28, 28, 4]");
  EXPECT_NE(error_of({layer("pixel_shuffle", {{"factor", whole(3)}}), head}, 0).find("pixel_shuffle of [N, 28, 28, 1]"),
            std::string::npos);
  EXPECT_EQ(error_of({layer("lstm", {{"width", whole(4)}}), head}, 0),
            "lstm: expected a sequence [N, positions, width], got [N, 28, 28, 1]");
  EXPECT_NE(error_of({layer("embedding", {{"width", whole(4)}}), layer("conv1d", {{"out", whole(4)}}), head}, 1,
                     {DType::i32, {12}})
                .find("expected causal = true"),
            std::string::npos);
  EXPECT_NE(error_of({layer("embedding", {{"width", whole(4)}}), layer("group_norm", {{"groups", whole(2)}}), head}, 1,
                     {DType::i32, {12}})
                .find("expected layer_norm or rms_norm for text"),
            std::string::npos);
}

TEST(LayerList, TokensDoNotSeeWhatTheyPredict) {
  const std::vector<LayerSpec> list{layer("embedding", {{"width", whole(16)}}), layer("transformer"),
                                    layer("dense", {{"out", whole(0)}})};
  EXPECT_NE(error_of(list, 1, {DType::i32, {12}}).find("expected causal = true"), std::string::npos);
}

TEST(LayerList, CountsParameters) {
  const std::vector<LayerSpec> list{layer("conv", {{"out", whole(32)}}),
                                    layer("max_pool"),
                                    layer("conv", {{"out", whole(64)}, {"activation", word("relu")}}),
                                    layer("max_pool"),
                                    layer("dense", {{"out", whole(128)}}),
                                    layer("dense", {{"out", whole(0)}})};
  EXPECT_EQ(weights_in(net(list), kFashion), 320 + 18496 + 7 * 7 * 64 * 128 + 128 + 1290);
}

TEST(LayerList, SamePaddingDividesTheSizeByTheStride) {
  for (const int64_t kernel : {1, 2, 3, 4, 5, 7})
    for (const int64_t stride : {1, 2, 3}) {
      const std::vector<LayerSpec> list{
          layer("conv", {{"out", whole(2)}, {"kernel", whole(kernel)}, {"stride", whole(stride)}, {"bias", false}}),
          layer("dense", {{"out", whole(1)}, {"bias", false}})};
      const int64_t side = (11 + stride - 1) / stride;
      EXPECT_EQ(weights_in(net(list, 1), {DType::u8, {11, 11, 1}}), 2 * kernel * kernel + 2 * side * side)
          << kernel << " " << stride;
    }
}

TEST(LayerList, ShapesThatDoNotFitNameTheLayer) {
  const LayerSpec head = layer("dense", {{"out", whole(0)}});
  EXPECT_EQ(error_of({layer("conv", {{"out", whole(4)}, {"name", word("a")}}), layer("max_pool"),
                      layer("conv", {{"out", whole(4)}, {"add", word("a")}}), head},
                     2),
            "add: expected an output of the same shape as conv's [N, 14, 14, 4], got \"a\" of [N, 28, 28, 4]");
  EXPECT_EQ(error_of({layer("global_pool"), layer("conv", {{"out", whole(4)}}), head}, 1),
            "conv: expected an image [N, height, width, channels], got [N, 1]");
  EXPECT_EQ(error_of({layer("conv", {{"out", whole(4)}}), layer("attention"), head}, 1),
            "attention: expected a sequence [N, positions, width], got [N, 28, 28, 4]");
  EXPECT_EQ(error_of({layer("dense", {{"out", whole(7)}})}, 0),
            "expected [N, 10] (a number for each class) as the output of the last layer, got [N, 7]");
  EXPECT_NE(error_of({layer("sequence"), layer("attention", {{"heads", whole(3)}}), head}, 1).find("3 heads"),
            std::string::npos);
  EXPECT_NE(error_of({layer("conv", {{"out", whole(4)}, {"kernel", whole(50)}, {"padding", whole(0)}}), head}, 0)
                .find("conv of [N, 28, 28, 1]: "),
            std::string::npos);
  EXPECT_NE(error_of({layer("conv", {{"out", whole(4)}, {"add", word("b")}}), head}, 0)
                .find("add: expected the name of an earlier layer"),
            std::string::npos);
  EXPECT_NE(
      error_of({layer("flatten", {{"name", word("a")}}), layer("dense", {{"out", whole(0)}, {"name", word("a")}})}, 1)
          .find("a name that no other layer has"),
      std::string::npos);
  EXPECT_NE(error_of({layer("conv", {{"out", whole(4)}}), layer("embedding", {{"width", whole(4)}}), head}, 1)
                .find("must be the first layer"),
            std::string::npos);
}

TEST(LayerSpecs, AreCheckedAndNormalised) {
  EXPECT_EQ(normalized(layer("conv", {{"activation", word("none")}, {"kernel", whole(3)}, {"out", whole(5)}})),
            layer("conv", {{"out", whole(5)}}));
  EXPECT_EQ(normalized(layer("dropout", {{"rate", whole(0)}})), layer("dropout", {{"rate", 0.0}}));
  EXPECT_EQ(check_layer(layer("conv"))[0].message,
            "conv needs out: channels of the output; 0: the number of classes, or of the channels of an image");
  EXPECT_EQ(check_layer(layer("dense", {{"out", 1.5}}))[0].message, "expected an integer from 0 to 1048576, got 1.5");
  EXPECT_EQ(check_layer(layer("dense", {{"out", whole(1)}, {"kernel", whole(1)}}))[0].key, "kernel");
  EXPECT_EQ(check_layer(layer("max_pool", {{"padding", word("sme")}}))[0].message,
            "expected \"same\" or an integer from 0 to 1024, got \"sme\"");
  EXPECT_NE(layer_reference().find("| `transformer` |"), std::string::npos);
}

}  // namespace
}  // namespace lathe
