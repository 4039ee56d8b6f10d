// Model families against what is published of them: numbers of parameters, names, starting values.
#include <gtest/gtest.h>

#include <algorithm>

#include "ir/verify.h"
#include "nn/step/step.h"

namespace lathe {
namespace {

const TensorType kImagenet{DType::u8, {224, 224, 3}};

std::vector<StateSpec> params_of(const ModelConfig& model, const TensorType& sample) {
  StepConfig c;
  c.model = model;
  std::vector<StateSpec> out;
  for (const StateSpec& s : predict_step(c, sample, 1).state)
    if (s.kind == InputKind::param) out.push_back(s);
  return out;
}

int64_t count(const ModelConfig& model, const TensorType& sample = kImagenet) {
  int64_t n = 0;
  for (const StateSpec& s : params_of(model, sample)) n += s.type.numel();
  return n;
}

// The published number, to which a head of another size adds `head`; the family's row has it for the docs.
void expect_published(const ModelConfig& model, int64_t parameters, const TensorType& sample = kImagenet,
                      int64_t head = 0) {
  EXPECT_EQ(count(model, sample), parameters + head) << model.family;
  std::string text = std::to_string(parameters);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, ",");
  EXPECT_NE(find_family(model.family).info.published.find(text), std::string_view::npos) << model.family << " " << text;
}

TEST(Families, ResnetsHaveTorchvisionsParameters) {
  const std::pair<int64_t, int64_t> published[] = {
      {18, 11'689'512}, {34, 21'797'672}, {50, 25'557'032}, {101, 44'549'160}};
  for (const auto& [depth, parameters] : published)
    expect_published(ModelConfig("resnet", {{"depth", depth}, {"stem", "imagenet"}}, {.classes = 1000}), parameters);
  // 3x3 instead of 7x7 in the stem.
  EXPECT_EQ(count(ModelConfig("resnet", {{"depth", 18}, {"stem", "small"}}, {.classes = 10}), {DType::u8, {32, 32, 3}}),
            11'173'962);
  EXPECT_THROW(count(ModelConfig("resnet", {{"depth", 20}})), UserError);
}

TEST(Families, ResnetBlocksMayStartAsTheIdentity) {
  for (const int64_t depth : {18, 50}) {
    const std::string last = depth == 18 ? ".bn2.weight" : ".bn3.weight";
    for (const bool zero : {false, true}) {
      int zeros = 0, blocks = 0;
      for (const StateSpec& s :
           params_of(ModelConfig("resnet", {{"depth", depth}, {"zero_init", zero}}), {DType::u8, {32, 32, 3}})) {
        if (s.type.shape.ndim() != 1 || !s.name.ends_with(".weight")) continue;
        blocks += s.name.ends_with(last);
        if (s.init.value == 0) {
          ++zeros;
          EXPECT_TRUE(s.name.ends_with(last)) << s.name;
        }
      }
      EXPECT_EQ(blocks, depth == 18 ? 8 : 16);
      EXPECT_EQ(zeros, zero ? blocks : 0);
    }
  }
}

TEST(Families, MobileNetsHaveThePublishedParameters) {
  expect_published(ModelConfig("mobilenetv2", {{"stem", "imagenet"}}, {.classes = 1000}), 3'504'872);
  const int64_t lite[] = {4'652'008, 5'416'680, 6'092'072, 8'197'096, 13'006'568};
  for (int64_t v = 0; v < 5; ++v)
    expect_published(ModelConfig("efficientnet", {{"stem", "imagenet"}, {"variant", v}}, {.classes = 1000}), lite[v]);
}

TEST(Families, TransformersHaveThePublishedParameters) {
  // ViT-B/16 of torchvision; without its class token and position.
  ModelConfig vit("vit", {{"layers", 12}, {"heads", 12}, {"width", 768}, {"patch", 16}}, {.classes = 1000});
  expect_published(vit, 86'567'656);
  vit.params.set("pool", "mean");
  EXPECT_EQ(count(vit), 86'567'656 - 2 * 768);
  const ModelConfig gpt2("gpt", {{"layers", 12}, {"heads", 12}, {"width", 768}, {"sequence", 1024}},
                         {.classes = 50257});
  expect_published(gpt2, 124'439'808, {DType::i32, {16}});
  const ModelConfig llama7b("gpt",
                            {{"layers", 32},
                             {"heads", 32},
                             {"width", 4096},
                             {"feed_forward", 11008},
                             {"norm", "rms"},
                             {"positions", "rotary"},
                             {"mlp", "swiglu"},
                             {"bias", false},
                             {"tied", false}},
                            {.classes = 32000});
  expect_published(llama7b, 6'738'415'616, {DType::i32, {16}});
  // Llama 3 8B: 8 heads of keys and values.
  ModelConfig llama8b = llama7b;
  llama8b.classes = 128256;
  llama8b.params.set("feed_forward", 14336).set("kv_heads", 8);
  expect_published(llama8b, 8'030'261'248, {DType::i32, {16}});
}

TEST(Families, MixersHaveThePublishedParameters) {
  ModelConfig mixer("mixer", {{"layers", 12}, {"width", 768}, {"patch", 16}}, {.classes = 1000});
  expect_published(mixer, 59'880'472);
  // Of each part: patches of 16 x 16 x 3, two norms and both pairs of dense layers in each block, a norm, the head.
  const auto dense = [](int64_t in, int64_t out) { return in * out + out; };
  const auto pair = [&](int64_t width, int64_t inner) { return dense(width, inner) + dense(inner, width); };
  mixer.params.set("token_mixing", 50).set("feed_forward", 100).set("layers", 3).set("width", 65);
  EXPECT_EQ(count(mixer),
            dense(16 * 16 * 3, 65) + 3 * (4 * 65 + pair(14 * 14, 50) + pair(65, 100)) + 2 * 65 + dense(65, 1000));
  EXPECT_THROW(count(mixer, {DType::u8, {224, 220, 3}}), UserError);
}

TEST(Families, BertsHaveThePublishedParameters) {
  // bert-base-uncased and all-MiniLM-L6-v2, with a head for two classes.
  const ModelConfig base(
      "bert", {{"layers", 12}, {"heads", 12}, {"width", 768}, {"sequence", 512}, {"tokens", true}, {"vocab", 30522}},
      {.classes = 2});
  expect_published(base, 109'482'240, {DType::i32, {16}}, 2 * 768 + 2);
  ModelConfig mini = base;
  mini.params.set("layers", 6).set("width", 384);
  expect_published(mini, 22'713'216, {DType::i32, {16}}, 2 * 384 + 2);
  std::vector<std::string> names;
  for (const StateSpec& s : params_of(mini, {DType::i32, {16}})) names.push_back(s.name);
  for (const char* name :
       {"embeddings.word_embeddings.weight", "embeddings.token_type_embeddings.weight", "embeddings.LayerNorm.bias",
        "encoder.layer.5.attention.self.query.weight", "encoder.layer.0.attention.output.LayerNorm.weight",
        "encoder.layer.0.intermediate.dense.bias", "encoder.layer.0.output.dense.weight", "pooler.dense.weight",
        "classifier.bias"})
    EXPECT_NE(std::ranges::find(names, name), names.end()) << name;
  // Rows of a series instead of tokens: a projection and a first position.
  ModelConfig series = mini;
  series.params.set("tokens", false);
  EXPECT_EQ(count(series, {DType::f32, {50, 10, 1}}),
            22'713'216 + 2 * 384 + 2 - 384 * (30522 + 512 + 2) + 384 * (10 + 1) + 384 + 51 * 384);
}

TEST(Families, UnetsHaveThePublishedParameters) {
  const ModelConfig unet("unet", {{"channels", Ints{64, 128, 256, 512, 1024}}}, {.classes = 2});
  expect_published(unet, 31'037'698, {DType::u8, {64, 64, 3}});
  EXPECT_THROW(count(unet, {DType::u8, {56, 64, 3}}), UserError);  // 16 does not divide 56
}

// Of every task: what a step reads as y, and what evaluation counts.
TEST(Families, TasksHaveTheirTargets) {
  const auto inputs = [](const Graph& g, const char* name) {
    for (const Input& in : g.inputs)
      if (in.name == name) return g.type(in.value);
    return TensorType{};
  };
  const TensorType image{DType::u8, {8, 8, 3}};
  StepConfig c;
  c.model = ModelConfig("unet", {{"channels", Ints{4, 8}}}, {.classes = 4});
  c.task = Task::segment;
  EXPECT_EQ(inputs(train_step(c, image, 2).graphs[0], "y"), (TensorType{DType::u8, {2, 8, 8}}));
  c.task = Task::restore;
  c.model.classes = 3;
  EXPECT_EQ(inputs(train_step(c, image, 2).graphs[0], "y"), (TensorType{DType::u8, {2, 8, 8, 3}}));
  c.task = Task::regress;
  c.model = ModelConfig("mlp", {{"hidden", Ints{8}}}, {.classes = 2});
  const StepSet step = eval_step(c, {DType::f32, {1, 5, 1}}, 3);
  EXPECT_EQ(inputs(step.graphs[0], "y"), (TensorType{DType::f32, {3, 2}}));
  EXPECT_EQ(inputs(step.graphs[0], "x"), (TensorType{DType::f32, {3, 1, 5, 1}}));
}

TEST(Families, RecurrentNetsHaveTheirParameters) {
  // Gates of rows of 28 pixels; two layers; the output layer.
  const ModelConfig lstm("lstm", {{"layers", 2}, {"width", 64}});
  EXPECT_EQ(count(lstm, {DType::u8, {28, 28, 1}}), 4 * 64 * (28 + 64 + 1) + 4 * 64 * (64 + 64 + 1) + 64 * 10 + 10);
  const ModelConfig gru("lstm", {{"layers", 1}, {"width", 64}, {"cell", "gru"}});
  EXPECT_EQ(count(gru, {DType::u8, {28, 28, 1}}), 3 * 64 * (28 + 64 + 2) + 64 * 10 + 10);
}

}  // namespace
}  // namespace lathe
