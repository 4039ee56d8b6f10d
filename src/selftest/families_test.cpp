// Each model family through the recipe: its keys, its tiny twin, and a few steps that agree on `ref` and `cpu`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compile/compile.h"
#include "nn/families/model.h"
#include "recipe/recipe_keys.h"
#include "selftest/selftest.h"

namespace lathe {
namespace {

struct FamilyCase {
  const char* base;
  Sets sets;
};

const std::vector<FamilyCase>& family_cases() {
  static const std::vector<FamilyCase> cases{
      {"mlp", {"model.family=resnet"}},
      {"mlp",
       {"model.family=resnet", "model.depth=50", "model.stem=imagenet", "model.zero_init=true", "model.dropout=0.2",
        "data.source=synthetic", "data.shape=[224,224,3]", "data.classes=1000"}},
      {"mlp", {"model.family=mobilenetv2"}},
      {"mlp", {"model.family=efficientnet", "model.variant=1"}},
      {"mlp", {"model.family=vit"}},
      {"mlp", {"model.family=vit", "model.pool=mean", "model.patch=14", "model.feed_forward=100"}},
      {"mlp", {"model.family=mixer", "model.dropout=0.1"}},
      {"mlp", {"model.family=mixer", "model.patch=14", "model.token_mixing=20", "model.feed_forward=100"}},
      {"mlp", {"model.family=bert", "model.layers=2", "model.dropout=0.1"}},
      {"clipart_unet", {"model.channels=[8,16,32,64]"}},
      {"clipart_unet", {"data.target=image", "model.dropout=0.1"}},
      {"diamonds", {"train.sam=0.01"}},
      {"mlp", {"model.family=lstm", "model.layers=2", "model.dropout=0.1"}},
      {"mlp", {"model.family=lstm", "model.cell=gru"}},
      {"mlp",
       {"model.family=layers",
        "model.layers=[{type=\"conv\",out=32,name=\"a\"},{type=\"conv\",out=32,add=\"a\",activation=\"relu\"},"
        "{type=\"max_pool\",kernel=4},{type=\"batch_norm\"},{type=\"max_pool\",kernel=4},{type=\"dense\",out=0}]"}},
      // A small U-Net, for masks and for images, and all that makes an image larger or smaller.
      {"clipart_unet",
       {"model.family=layers",
        "model.layers=[{type=\"conv\",out=8,name=\"a\",activation=\"leaky_relu\"},{type=\"max_pool\"},"
        "{type=\"conv\",out=8,activation=\"elu\"},{type=\"instance_norm\"},{type=\"conv_transpose\",out=4},"
        "{type=\"concat\",with=\"a\"},{type=\"prelu\"},{type=\"conv\",out=0}]"}},
      {"clipart_unet",
       {"data.target=image", "model.family=layers",
        "model.layers=[{type=\"conv\",out=8,stride=4,activation=\"selu\"},{type=\"pixel_shuffle\"},"
        "{type=\"resize\",kind=\"bilinear\"},{type=\"resize\",activation=\"mish\"},{type=\"pixel_unshuffle\"},"
        "{type=\"conv\",out=0}]"}},
      {"mlp",
       {"model.family=layers",
        "model.layers=[{type=\"adaptive_pool\",height=6,width=7,kind=\"max\"},{type=\"sequence\",of=\"rows\"},{type="
        "\"conv1d\",out=8,stride=2,activation=\"hard_swish\"},"
        "{type=\"gru\",width=8,both_ways=true},{type=\"group_norm\",groups=2,activation=\"softplus\"},"
        "{type=\"lstm\",width=8,states=\"last\",both_ways=true,activation=\"hard_sigmoid\"},{type=\"dense\",out=0}]"}},
      {"mlp", {"train.loss=triplet", "train.embedding=8"}},
      {"mlp", {"train.loss=contrastive", "train.embedding=8"}},
      {"gpt_tiny",
       {"model.family=layers", "train.loss=kl", "train.label_smoothing=0.1",
        "model.layers=[{type=\"embedding\",width=8},{type=\"conv1d\",out=8,causal=true,dilation=2},"
        "{type=\"lstm\",width=8},{type=\"dense\",out=0}]"}},
      {"gpt_tiny",
       {"model.family=layers",
        "model.layers=[{type=\"embedding\",width=32},{type=\"positions\"},{type=\"transformer\",causal=true},"
        "{type=\"dense\",out=0}]"}},
      {"gpt_tiny",
       {"model.norm=rms", "model.positions=rotary", "model.mlp=swiglu", "model.kv_heads=2", "model.bias=false",
        "model.tied=false"}},
  };
  return cases;
}

TEST(Families, TheTableOfKeysNamesThemAll) {
  const auto choices = allowed_of(*find_section_key("model.family")).choices;
  ASSERT_EQ(choices.size(), model_families().size());
  for (size_t i = 0; i < choices.size(); ++i) EXPECT_EQ(choices[i], model_families()[i].name());
}

TEST(Families, TinyTwinsAreValidAndTrainAlikeOnRefAndCpu) {
  for (const FamilyCase& c : family_cases()) {
    const Recipe r = load_recipe(c.base, c.sets), tiny = tiny_twin(r);
    SCOPED_TRACE(c.sets[0] + (c.sets.size() > 1 ? " " + c.sets[1] : ""));
    EXPECT_EQ(parse_recipe(to_toml(r), "x.toml"), r);
    ASSERT_NO_THROW(validate(tiny)) << to_toml(tiny);
    EXPECT_EQ(tiny.model.family, r.model.family);
    const TrainingCheck check = check_training(tiny, find_backend("ref"), {}, 3);
    EXPECT_TRUE(check.ok()) << to_text(check);
  }
}

}  // namespace
}  // namespace lathe
