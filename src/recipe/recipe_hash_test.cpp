#include <gtest/gtest.h>

#include "io/hash.h"
#include "passes/pass.h"
#include "recipe/recipe.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

TEST(Recipe, TheHashCoversWhatChangesNumbers) {
  const Recipe base = parse_recipe("", "x.toml");
  const std::string hash = recipe_hash(base, {});
  const auto with = [&](const Sets& sets) { return recipe_hash(parse_recipe("", "x.toml", sets), {}); };
  for (const Sets& same : {Sets{"name=other"},
                           {"device=ref"},
                           {"train.epochs=3"},
                           {"train.steps=3"},
                           {"train.log_every=3"},
                           {"checkpoint.keep_last=9"},
                           {"memory.budget=1GiB"},
                           {"data.threads=3"},
                           {"data.prefetch=7"},
                           {"data.path=/x"}})
    EXPECT_EQ(with(same), hash) << same[0];
  for (const Sets& other : {Sets{"seed=1"},
                            {"train.batch_size=64"},
                            {"train.update=after_all"},
                            {"optimizer.lr=0.2"},
                            {"model.hidden=[3]"},
                            {"data.augment.flip=true"},
                            {"schedule.warmup_steps=1"}})
    EXPECT_NE(with(other), hash) << other[0];
  EXPECT_NE(recipe_hash(base, {"fuse"}), hash);
  EXPECT_EQ(recipe_hash(base, {"fuse", "cse"}), recipe_hash(base, {"cse", "fuse", "cse"}));
  EXPECT_TRUE(changes_numbers(base, "seed"));
  EXPECT_FALSE(changes_numbers(base, "train.epochs"));
  EXPECT_FALSE(changes_numbers(base, "train.eval_every"));
  EXPECT_TRUE(changes_numbers(parse_recipe("schedule.name = \"plateau\"", "x.toml"), "train.eval_every"));
}

// The text that is hashed must not change: runs of earlier versions are resumed by it.
TEST(Recipe, TheTextOfTheHashIsStable) {
  const auto hash = [](const std::string& text) { return io::hash_bytes(io::bytes_of(text + "disabled passes = \n")); };
  EXPECT_EQ(recipe_hash(Recipe{}, {}), hash(""));
  EXPECT_EQ(recipe_hash(
                parse_recipe("", "x.toml",
                             {"model.family=cnn", "model.channels=[8]", "model.dropout=0.5", "model.dense=128",
                              "train.loss=focal", "train.focal_gamma=3", "train.label_smoothing=0.1", "train.sam=0.5"}),
                {}),
            hash("model.family = \"cnn\"\nmodel.channels = [8]\nmodel.dropout = 0.5\ntrain.loss = \"focal\"\n"
                 "train.focal_gamma = 3.0\ntrain.label_smoothing = 0.1\ntrain.sam = 0.5\n"));
  EXPECT_EQ(
      recipe_hash(parse_recipe("", "x.toml",
                               {"model.family=layers", "optimizer.name=lamb",
                                "model.layers=[{type=\"conv\",activation=\"relu\",padding=\"same\",out=8,stride=2},"
                                "{rate=0,type=\"dropout\"},{type=\"dense\",out=0}]",
                                "optimizer.groups=[{match=[\"*.bias\"],weight_decay=0,lr_scale=2}]"}),
                  {}),
      hash("model.family = \"layers\"\nmodel.layers = [{ type = \"conv\", out = 8, stride = 2, activation = "
           "\"relu\" }, { type = \"dropout\", rate = 0.0 }, { type = \"dense\", out = 0 }]\n"
           "optimizer.name = \"lamb\"\noptimizer.eps = 1e-06\n"
           "optimizer.groups = [{match = \"*.bias\", lr_scale = 2.0, weight_decay = 0.0}]\n"));
}

// The hash of a recipe with these lines, each as it is hashed, set from the last to the first.
std::string hash_of_lines(const std::string& lines, std::vector<std::string> sets = {}) {
  for (size_t at = 0; at < lines.size(); at = lines.find('\n', at) + 1) {
    std::string line = lines.substr(at, lines.find('\n', at) - at);
    line.erase(line.find(" = "), 1);
    line.erase(line.find("= ") + 1, 1);
    sets.insert(sets.begin(), line);
  }
  return recipe_hash(parse_recipe("", "x.toml", sets), {});
}
std::string hash_of_text(const std::string& lines) {
  return io::hash_bytes(io::bytes_of(lines + "disabled passes = \n"));
}

// Settings of sources are hashed where they stood when they were members of [data].
TEST(Recipe, TheHashKnowsTheOrderOfSettingsOfSources) {
  const std::string csv =
      "data.source = \"csv\"\ndata.label = \"a\"\ndata.ignore = \"b\"\ndata.header = \"no\"\ndata.row = 2\n"
      "data.standardize = false\ndata.classes = 3\ndata.train_samples = 500\n";
  EXPECT_EQ(hash_of_lines(csv, {"data.path=a", "data.test_path=b"}), hash_of_text(csv));
  const std::string png =
      "data.source = \"png\"\ndata.target = \"mask\"\ndata.noise = 3.0\ndata.max_pixels = 99\ndata.classes = 2\n"
      "data.shape = [16, 16, 3]\ndata.train_samples = 500\nmodel.family = \"unet\"\n";
  EXPECT_EQ(hash_of_lines(png, {"data.path=a"}), hash_of_text(png));
  const std::string arrays =
      "data.source = \"arrays\"\ndata.target = \"value\"\ndata.classes = 2\ndata.shape = [4, 4, 1]\n"
      "data.target_mean = [1.0, 2.0]\ndata.target_scale = [3.0, 4.0]\ndata.validation = 0.5\n";
  EXPECT_EQ(hash_of_lines(arrays), hash_of_text(arrays));
  const std::string text = "data.source = \"text\"\ndata.validation = 0.5\ndata.sequence = 9\nmodel.family = \"gpt\"\n";
  EXPECT_EQ(hash_of_lines(text, {"data.threads=2"}), hash_of_text(text));
}

// Options of passes are hashed where they stood when they were members of [optimizer] and [train].
TEST(Recipe, TheHashKnowsTheOrderOfOptions) {
  const std::string lines =
      "optimizer.weight_decay = 0.5\noptimizer.lookahead = 5\noptimizer.lookahead_alpha = 0.25\n"
      "optimizer.groups = [{match = \"a\", frozen = true}]\n"
      "train.batch_size = 8\ntrain.accumulate = 4\ntrain.update = \"after_all\"\ntrain.clip_norm = 2.0\n"
      "train.clip_value = 3.0\ntrain.label_smoothing = 0.1\ntrain.sam = 0.5\ntrain.ema = 0.9\n"
      "train.precision = \"f16\"\ntrain.loss_scale = 64.0\ntrain.loss_scale_growth = 7\ntrain.on_nan = \"skip\"\n"
      "train.nan_patience = 9\n";
  EXPECT_EQ(hash_of_lines(lines), hash_of_text(lines));
}

}  // namespace
}  // namespace lathe
