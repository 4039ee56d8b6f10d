#include <gtest/gtest.h>

#include <algorithm>

#include "nn/layer_types/layer_type.h"
#include "nn/step/step.h"

namespace lathe {
namespace {

ParamSet layer(const std::string& type, const NamedValues& keys = {}) { return make_layer_params(type, keys); }

ModelConfig net(Tables list, int64_t classes = 10) {
  return ModelConfig("layers", {{"layers", std::move(list)}}, {.classes = classes});
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

std::string error_of(Tables list, size_t index, const TensorType& sample = kFashion) {
  try {
    weights_in(net(std::move(list)), sample);
  } catch (const LayerError& e) {
    EXPECT_EQ(e.index, index) << e.what();
    return e.what();
  }
  return "no error";
}

TEST(LayerList, EveryTypeBuilds) {
  const auto name = [](const char* n) { return std::pair<std::string_view, ParamValue>("name", n); };
  const Tables image{
      layer("conv", {{"out", 8}, {"stride", 2}, name("stem")}),
      layer("batch_norm", {{"activation", "relu"}, name("first")}),
      layer("conv", {{"out", 8}, {"groups", 8}, {"bias", false}}),
      layer("group_norm", {{"groups", 2}, {"add", "first"}, {"activation", "relu6"}}),
      layer("max_pool"),
      layer("avg_pool", {{"kernel", 3}, {"stride", 2}, {"padding", "same"}}),
      layer("sequence"),
      layer("positions"),
      layer("rms_norm", {name("normed")}),
      layer("attention", {{"heads", 4}, {"kv_heads", 2}, {"rotary", true}, {"add", "normed"}}),
      layer("transformer", {{"heads", 2}, {"dropout", 0.1}}),
      layer("layer_norm"),
      layer("global_pool", {{"kind", "max"}, name("pooled")}),
      layer("dense", {{"out", 8}, {"add", "pooled"}}),
      layer("dropout", {{"rate", 0.5}}),
      layer("activation", {{"function", "tanh"}}),
      layer("flatten"),
      layer("dense", {{"out", 0}}),
  };
  const Tables picture{
      layer("conv", {{"out", 4}, name("a")}),
      layer("adaptive_pool", {{"height", 7}, {"width", 14}}),
      layer("resize", {{"height", 14}, {"width", 14}, {"kind", "bilinear"}}),
      layer("conv_transpose", {{"out", 16}, {"groups", 2}}),
      layer("instance_norm"),
      layer("pixel_shuffle"),
      layer("pixel_unshuffle"),
      layer("concat", {{"with", "a"}}),
      layer("prelu"),
      layer("conv", {{"out", 0}}),
  };
  const Tables series{layer("sequence", {{"of", "rows"}}), layer("conv1d", {{"out", 6}}),
                      layer("gru", {{"width", 4}, {"both_ways", true}}),
                      layer("lstm", {{"width", 4}, {"states", "last"}}), layer("dense", {{"out", 0}})};
  for (const Tables* list : {&image, &picture, &series}) {
    const ModelConfig model = net(*list);
    const Field& f = *model.params.schema().find("layers");
    EXPECT_FALSE(check_value(model.params.at(f), f.allowed));
  }
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
  const Tables text{layer("embedding", {{"width", 16}}), layer("positions"), layer("transformer", {{"causal", true}}),
                    layer("dense", {{"out", 0}})};
  c.model = net(text, 100);
  EXPECT_EQ(token_input(c.model)->vocab, 256);
  EXPECT_EQ(weights_in(c.model, {DType::i32, {12}}), 100 * 16 + 12 * 16 + (16 * 48 + 48 + 16 * 16 + 16) + 4 * 16 +
                                                         (16 * 64 + 64 + 64 * 16 + 16) + 16 * 100 + 100);
  // Each type of the table was used.
  for (const LayerType& t : layer_types()) {
    const auto is = [&](const ParamSet& s) { return &type_of_layer(s) == &t; };
    const auto used = [&](const Tables& list) { return std::any_of(list.begin(), list.end(), is); };
    EXPECT_TRUE(used(image) || used(text) || used(picture) || used(series)) << t.table.name;
  }
}

// The shape of what a list makes of a [2, 12, 10, 8] image, as the error of a last layer that does not fit shows it.
TEST(LayerList, ShapesOfLayers) {
  const auto shape = [](Tables list) {
    const std::string error = error_of(list, list.size() - 1, {DType::f32, {12, 10, 8}});
    return error.substr(error.find("got ") + 4);
  };
  EXPECT_EQ(shape({layer("conv_transpose", {{"out", 5}})}), "[N, 24, 20, 5]");
  EXPECT_EQ(shape({layer("conv_transpose", {{"out", 5}, {"kernel", 3}, {"padding", 1}, {"extra", 1}})}),
            "[N, 24, 20, 5]");
  EXPECT_EQ(shape({layer("pixel_shuffle")}), "[N, 24, 20, 2]");
  EXPECT_EQ(shape({layer("pixel_unshuffle")}), "[N, 6, 5, 32]");
  EXPECT_EQ(shape({layer("resize", {{"factor", 3}})}), "[N, 36, 30, 8]");
  EXPECT_EQ(shape({layer("resize", {{"height", 7}})}), "[N, 7, 20, 8]");
  EXPECT_EQ(shape({layer("adaptive_pool", {{"width", 3}})}), "[N, 1, 3, 8]");
  const ParamSet rows = layer("sequence", {{"of", "rows"}}), a = layer("conv", {{"out", 3}, {"name", "a"}});
  EXPECT_EQ(shape({rows}), "[N, 12, 80]");
  EXPECT_EQ(shape({rows, layer("conv1d", {{"out", 5}, {"stride", 2}})}), "[N, 6, 5]");
  EXPECT_EQ(shape({rows, layer("conv1d", {{"out", 5}, {"dilation", 3}, {"causal", true}})}), "[N, 12, 5]");
  EXPECT_EQ(shape({rows, layer("gru", {{"width", 5}})}), "[N, 12, 5]");
  EXPECT_EQ(shape({rows, layer("lstm", {{"width", 6}, {"states", "last"}, {"both_ways", true}})}), "[N, 12]");
  EXPECT_EQ(shape({a, layer("conv", {{"out", 4}}), layer("concat", {{"with", "a"}})}), "[N, 12, 10, 7]");
}

TEST(LayerList, NewLayersThatDoNotFit) {
  const ParamSet head = layer("dense", {{"out", 0}});
  EXPECT_EQ(
      error_of({layer("conv", {{"out", 4}, {"name", "a"}}), layer("max_pool"), layer("concat", {{"with", "a"}}), head},
               2),
      "with: expected an output that differs from [N, 14, 14, 4] in the last number alone, got \"a\" of "
      "[N, 28, 28, 4]");
  EXPECT_NE(error_of({layer("pixel_shuffle", {{"factor", 3}}), head}, 0).find("pixel_shuffle of [N, 28, 28, 1]"),
            std::string::npos);
  EXPECT_EQ(error_of({layer("lstm", {{"width", 4}}), head}, 0),
            "lstm: expected a sequence [N, positions, width], got [N, 28, 28, 1]");
  EXPECT_NE(error_of({layer("embedding", {{"width", 4}}), layer("conv1d", {{"out", 4}}), head}, 1, {DType::i32, {12}})
                .find("expected causal = true"),
            std::string::npos);
  EXPECT_NE(
      error_of({layer("embedding", {{"width", 4}}), layer("group_norm", {{"groups", 2}}), head}, 1, {DType::i32, {12}})
          .find("expected layer_norm or rms_norm for text"),
      std::string::npos);
}

TEST(LayerList, TokensDoNotSeeWhatTheyPredict) {
  const Tables list{layer("embedding", {{"width", 16}}), layer("transformer"), layer("dense", {{"out", 0}})};
  EXPECT_NE(error_of(list, 1, {DType::i32, {12}}).find("expected causal = true"), std::string::npos);
}

TEST(LayerList, CountsParameters) {
  const Tables list{layer("conv", {{"out", 32}}),
                    layer("max_pool"),
                    layer("conv", {{"out", 64}, {"activation", "relu"}}),
                    layer("max_pool"),
                    layer("dense", {{"out", 128}}),
                    layer("dense", {{"out", 0}})};
  EXPECT_EQ(weights_in(net(list), kFashion), 320 + 18496 + 7 * 7 * 64 * 128 + 128 + 1290);
}

TEST(LayerList, SamePaddingDividesTheSizeByTheStride) {
  for (const int64_t kernel : {1, 2, 3, 4, 5, 7})
    for (const int64_t stride : {1, 2, 3}) {
      const Tables list{layer("conv", {{"out", 2}, {"kernel", kernel}, {"stride", stride}, {"bias", false}}),
                        layer("dense", {{"out", 1}, {"bias", false}})};
      const int64_t side = (11 + stride - 1) / stride;
      EXPECT_EQ(weights_in(net(list, 1), {DType::u8, {11, 11, 1}}), 2 * kernel * kernel + 2 * side * side)
          << kernel << " " << stride;
    }
}

TEST(LayerList, ShapesThatDoNotFitNameTheLayer) {
  const ParamSet head = layer("dense", {{"out", 0}});
  EXPECT_EQ(error_of({layer("conv", {{"out", 4}, {"name", "a"}}), layer("max_pool"),
                      layer("conv", {{"out", 4}, {"add", "a"}}), head},
                     2),
            "add: expected an output of the same shape as conv's [N, 14, 14, 4], got \"a\" of [N, 28, 28, 4]");
  EXPECT_EQ(error_of({layer("global_pool"), layer("conv", {{"out", 4}}), head}, 1),
            "conv: expected an image [N, height, width, channels], got [N, 1]");
  EXPECT_EQ(error_of({layer("conv", {{"out", 4}}), layer("attention"), head}, 1),
            "attention: expected a sequence [N, positions, width], got [N, 28, 28, 4]");
  EXPECT_EQ(error_of({layer("dense", {{"out", 7}})}, 0),
            "expected [N, 10] (a number for each class) as the output of the last layer, got [N, 7]");
  EXPECT_NE(error_of({layer("sequence"), layer("attention", {{"heads", 3}}), head}, 1).find("3 heads"),
            std::string::npos);
  EXPECT_NE(
      error_of({layer("conv", {{"out", 4}, {"kernel", 50}, {"padding", 0}}), head}, 0).find("conv of [N, 28, 28, 1]: "),
      std::string::npos);
  EXPECT_NE(
      error_of({layer("conv", {{"out", 4}, {"add", "b"}}), head}, 0).find("add: expected the name of an earlier layer"),
      std::string::npos);
  EXPECT_NE(error_of({layer("flatten", {{"name", "a"}}), layer("dense", {{"out", 0}, {"name", "a"}})}, 1)
                .find("a name that no other layer has"),
            std::string::npos);
  EXPECT_NE(error_of({layer("conv", {{"out", 4}}), layer("embedding", {{"width", 4}}), head}, 1)
                .find("must be the first layer"),
            std::string::npos);
}

TEST(LayerTypes, PrintWhatIsNotDefault) {
  EXPECT_EQ(table_text(layer("conv", {{"activation", "none"}, {"kernel", 3}, {"out", 5}}), "conv"),
            "{ type = \"conv\", out = 5 }");
  EXPECT_EQ(table_text(layer("dropout", {{"rate", 0}}), "dropout"), "{ type = \"dropout\", rate = 0.0 }");
  EXPECT_EQ(layer("conv", {{"kernel", 3}}), layer("conv"));
  EXPECT_NE(layer("lstm"), layer("gru"));
  EXPECT_THROW(layer("dense", {{"kernel", 1}}), UserError);
  EXPECT_THROW(layer("dnse"), UserError);
  const Field& padding = *layer("max_pool").schema().find("padding");
  EXPECT_EQ(allowed_text(layer("max_pool").at(padding), padding.allowed), "\"same\" or an integer from 0 to 1024");
  EXPECT_NE(layer_reference().find("| `transformer` |"), std::string::npos);
  EXPECT_NE(layer_reference().find("| | `out` | required | an integer from 0 to 65536 |"), std::string::npos);
}

// Each type has a name of its own, and the keys of all layers at the end.
TEST(LayerTypes, HaveTheKeysOfAllLayers) {
  const auto common = schema_of<LayerParams>().names();
  for (const LayerType& t : layer_types()) {
    const auto names = t.table.schema().names();
    ASSERT_GE(names.size(), common.size());
    EXPECT_TRUE(std::equal(common.rbegin(), common.rend(), names.rbegin())) << t.table.name;
    EXPECT_EQ(&type_of_layer(layer(std::string(t.table.name))), &t);
  }
}

}  // namespace
}  // namespace lathe
