#include "recipe/recipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "recipe/recipe_keys.h"

namespace lathe {
namespace {

TEST(Recipe, AcceptsBomAndWindowsLines) {
  EXPECT_EQ(parse_recipe("\xef\xbb\xbfseed = 5\r\n[train]\r\nepochs = 3\r\n", "a.toml").train.epochs, 3);
}

TEST(Recipe, ReadsEveryKind) {
  const Recipe r = parse_recipe(
      "name = \"x\"\nseed = 7\ndevice = \"opencl:1\"\n"
      "[data]\nnormalize = { mean = 0.5, std = [2] }\n[model]\nfamily = \"cnn\"\nchannels = 8\nbatch_norm = false\n"
      "[optimizer]\nlr = 1\n[memory]\nbudget = \"1.5GiB\"\n",
      "a.toml");
  EXPECT_EQ(r.name, "x");
  EXPECT_EQ(r.seed, 7);
  EXPECT_EQ(r.device.name, "opencl:1");
  EXPECT_EQ(r.data.normalize.mean, Doubles{0.5});
  EXPECT_EQ(r.data.normalize.std, Doubles{2});
  EXPECT_EQ(r.model.channels, Ints{8});
  EXPECT_FALSE(r.model.batch_norm);
  EXPECT_EQ(r.optimizer.lr, 1.0);
  EXPECT_EQ(r.memory.budget.bytes, int64_t{3} << 29);
  EXPECT_EQ(parse_recipe("[device]\nname = \"cpu\"\nthreads = 2", "a.toml").device, (DeviceRecipe{"cpu", 2}));
  EXPECT_EQ(parse_recipe("", "dir/my run.v2.toml").name, "recipe");
  EXPECT_EQ(parse_recipe("", "dir/run.v2.toml").name, "run.v2");
}

TEST(Recipe, SizesParse) {
  const std::pair<const char*, int64_t> good[] = {
      {"0", 0},          {"512MiB", 512 << 20}, {"1GB", 1000000000}, {"2G", int64_t{2} << 30},
      {"64 KiB", 65536}, {"1024", 1024},        {"7B", 7},           {"0.5KiB", 512}};
  for (const auto& [text, bytes] : good) EXPECT_EQ(parse_size(text), ByteSize{bytes}) << text;
  for (const char* text : {"", "MiB", "1.5", "-1", "1e3", "5 mib", "1MiB ", "nan", "inf", "0x10", "1 2"}) {
    EXPECT_FALSE(parse_size(text)) << text;
  }
  for (int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1023}, int64_t{1024}, int64_t{5} << 40, int64_t{1} << 52}) {
    EXPECT_EQ(parse_size(size_text({bytes})), ByteSize{bytes});
  }
}

TEST(RecipeSets, OverrideInOrderAndAnyForm) {
  const std::string text = "device = \"cpu\"\n[train]\nepochs = 3\n";
  const auto with = [&](const Sets& sets) { return parse_recipe(text, "a.toml", sets); };
  EXPECT_EQ(with({"device=opencl", "device=cpu", "device.threads=3"}).device, (DeviceRecipe{"cpu", 3}));
  EXPECT_EQ(with({"device=opencl:0"}).device, (DeviceRecipe{"opencl:0", 0}));
  EXPECT_EQ(with({"device.name=ref"}).device.name, "ref");
  EXPECT_EQ(with({"device={name=\"cpu\", threads=2}"}).device, (DeviceRecipe{"cpu", 2}));
  EXPECT_EQ(with({"train.epochs=5", "train.epochs=6"}).train.epochs, 6);
  EXPECT_EQ(with({"optimizer.name=adam"}).optimizer.name, "adam");
  EXPECT_EQ(with({"optimizer.name=\"adam\""}).optimizer.name, "adam");
  EXPECT_EQ(with({"optimizer.lr=3e-4"}).optimizer.lr, 3e-4);
  EXPECT_EQ(with({"model.hidden=[1, 2]"}).model.hidden, (Ints{1, 2}));
  EXPECT_EQ(with({"model.hidden=1,2"}).model.hidden, (Ints{1, 2}));
  EXPECT_EQ(with({"model.hidden=7"}).model.hidden, Ints{7});
  EXPECT_EQ(with({"model.hidden=[]"}).model.hidden, Ints{});
  EXPECT_EQ(with({"data.augment.flip=true"}).data.augment.flip, true);
  EXPECT_EQ(with({"data.path=/a b/c=d"}).data.path, "/a b/c=d");
  EXPECT_EQ(with({"data.path="}).data.path, "");
  EXPECT_EQ(with({"data.path=2024-01-01"}).data.path, "2024-01-01");
  EXPECT_EQ(with({"name=17"}).name, "17");
  EXPECT_EQ(with({"memory.budget=512MiB"}).memory.budget.bytes, 512 << 20);
  EXPECT_EQ(with({"memory.budget=0"}).memory.budget.bytes, 0);
  EXPECT_EQ(with({"memory.budget=4096"}).memory.budget.bytes, 4096);
}

TEST(Recipe, PrintsAndParsesBack) {
  Recipe r;
  r.name = "odd";
  r.seed = 2147483647;
  r.data.path = "a \"b\" \\ \t\n\x01 \xc3\xa9";
  r.data.source = "idx";
  EXPECT_EQ(parse_recipe(to_toml(r), "x.toml"), r) << to_toml(r);
  r.data.path.clear();
  r.data.normalize = {{0.1, 1e-300, -3}, {1e5, 1.0 / 3, 2}};
  r.data.source = "synthetic";
  r.data.shape = {5, 6, 3};
  r.model.hidden = {};
  r.optimizer.lr = 0.1 + 0.2;
  r.optimizer.name = "adam";
  r.optimizer.eps = 1e-12;
  r.memory.budget = {1234567};
  validate(r);
  EXPECT_EQ(parse_recipe(to_toml(r), "x.toml"), r) << to_toml(r);
  const Recipe defaults = parse_recipe("", "x.toml");
  EXPECT_EQ(parse_recipe(to_toml(defaults), "y.toml"), defaults);
  // Every key is explicit.
  const std::string text = to_toml(r);
  for (const RecipeKey& key : recipe_keys()) {
    const std::string line = "\n" + std::string(key.path.substr(key.path.rfind('.') + 1)) + " = ";
    EXPECT_NE(("\n" + text).find(line), std::string::npos) << key.path;
  }
}

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

TEST(Recipe, EachKeyIsPrintedCheckedAndCompared) {
  const Recipe base = parse_recipe("", "x.toml");
  for (const RecipeKey& key : recipe_keys()) {
    Recipe changed = base;
    std::visit(
        [](auto* p) {
          using T = std::remove_pointer_t<decltype(p)>;
          if constexpr (std::is_same_v<T, bool>)
            *p = !*p;
          else if constexpr (std::is_same_v<T, std::string>)
            *p += "x";
          else if constexpr (std::is_same_v<T, ByteSize>)
            p->bytes += 5;
          else if constexpr (std::is_same_v<T, LayersRecipe>)
            p->count += 1;
          else if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Doubles>)
            p->push_back(3);
          else if constexpr (std::is_same_v<T, Groups>)
            p->push_back({{"*.bias"}, 2, 0.5, true});
          else
            *p += 1;
        },
        key.field(changed));
    EXPECT_NE(changed, base) << key.path;
    const auto differences = diff(base, changed);
    ASSERT_EQ(differences.size(), 1u) << key.path;
    EXPECT_EQ(differences[0].key, key.path);
    EXPECT_NE(differences[0].a, differences[0].b);
    EXPECT_FALSE(check_value(key, base)) << key.path;
    EXPECT_FALSE(key.help.empty());
    EXPECT_NE(recipe_reference().find("| `" + std::string(key.path) + "`"), std::string::npos);
  }
  EXPECT_TRUE(diff(base, base).empty());
}

TEST(Recipe, GroupsReadAndPrint) {
  const std::string text =
      "[[optimizer.groups]]\nmatch = [\"*.bias\", \"*norm*\"]\nweight_decay = 0\n"
      "[[optimizer.groups]]\nmatch = \"fc1.*\"\nlr_scale = 0.1\nfrozen = true\n";
  const Groups groups{{{"*.bias", "*norm*"}, 1, 0.0, false}, {{"fc1.*"}, 0.1, {}, true}};
  const Recipe r = parse_recipe(text, "x.toml");
  EXPECT_EQ(r.optimizer.groups, groups);
  EXPECT_EQ(parse_recipe(to_toml(r), "x.toml"), r) << to_toml(r);
  const Recipe set = parse_recipe("", "x.toml", {"optimizer.groups=[{match=\"fc1.*\",lr_scale=0.1,frozen=true}]"});
  EXPECT_EQ(set.optimizer.groups, Groups{groups[1]});
  EXPECT_NE(recipe_hash(r, {}), recipe_hash(set, {}));
}

TEST(Recipe, OptimizersHaveDefaultsOfTheirOwn) {
  const auto with = [](const std::string& text, const Sets& sets = {}) {
    return parse_recipe(text, "x.toml", sets).optimizer;
  };
  EXPECT_EQ(with("optimizer.name = \"lion\"").beta2, 0.99);
  EXPECT_EQ(with("optimizer.name = \"adamw\"").beta2, 0.999);
  EXPECT_EQ(with("", {"optimizer.name=muon"}).momentum, 0.95);
  EXPECT_TRUE(with("", {"optimizer.name=muon"}).nesterov);
  EXPECT_EQ(with("optimizer.name = \"rmsprop\"").momentum, 0.0);
  // What is written stays, wherever the name comes from.
  EXPECT_EQ(with("optimizer.name = \"adam\"\noptimizer.beta2 = 0.5", {"optimizer.name=lion"}).beta2, 0.5);
  EXPECT_EQ(with("", {"optimizer.name=muon", "optimizer.nesterov=false"}).nesterov, false);
  for (const char* name : {"rmsprop", "lion", "muon", "lamb", "lars", "adafactor", "adagrad", "adamax"}) {
    const Recipe r = parse_recipe("", "x.toml", {std::string("optimizer.name=") + name});
    EXPECT_EQ(parse_recipe(to_toml(r), "x.toml"), r) << name;
  }
}

TEST(Recipe, ValidateChecksRecipesMadeInCode) {
  Recipe r;
  r.name = "x";
  validate(r);
  r.train.batch_size = 0;
  try {
    validate(r);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_STREQ(e.what(), "train.batch_size: expected an integer from 1 to 16777216, got 0");
    EXPECT_EQ(e.exit_code(), Exit::bad_recipe);
  }
}

TEST(BuiltinRecipes, AreValidAndRoundTrip) {
  std::vector<std::string_view> names;
  for (const BuiltinRecipe& builtin : builtin_recipes()) {
    names.push_back(builtin.name);
    const Recipe r = load_recipe(std::string(builtin.name));
    EXPECT_EQ(r.name, builtin.name);
    EXPECT_EQ(parse_recipe(to_toml(r), "x.toml"), r);
    EXPECT_EQ(builtin.text.substr(0, 2), "# ") << builtin.name;
    for (const char* part : {"# Data:", "# Expected:", "# Time:"})
      EXPECT_NE(builtin.text.find(part), builtin.text.npos) << builtin.name;
    EXPECT_GT(recipe_summary(builtin.text).size(), 10u);
  }
  for (std::string_view name : {"fashion_mnist", "mlp", "gpt_tiny"}) {
    EXPECT_NE(std::find(names.begin(), names.end(), name), names.end()) << name;
  }
  EXPECT_EQ(load_recipe(std::string(kDefaultRecipe)).data.source, "fashion_mnist");
  EXPECT_TRUE(std::is_sorted(names.begin(), names.end()));
}

TEST(BuiltinRecipes, UnknownNamesListThem) {
  const auto message = [](const std::string& name) {
    try {
      load_recipe(name);
    } catch (const UserError& e) {
      EXPECT_EQ(e.exit_code(), Exit::missing_input);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  EXPECT_NE(message("fashion_mist").find("did you mean \"fashion_mnist\"?"), std::string::npos);
  EXPECT_NE(message("zzz").find("fashion_mnist, "), std::string::npos) << message("zzz");
  EXPECT_NE(message("/no/such.toml").find("/no/such.toml: no such file"), std::string::npos);
  EXPECT_NE(message("/dev").find("/dev: expected a recipe file, got a directory"), std::string::npos);
  EXPECT_NE(message("/dev/null").find("got a FIFO, device or socket"), std::string::npos);
}

TEST(RecipeFile, LoadsFromDisk) {
  const auto path = std::filesystem::temp_directory_path() / ("lathe_recipe_" + std::to_string(::getpid()) + ".toml");
  std::ofstream(path) << "seed = 3\n[train]\nepochs = x\n";
  try {
    load_recipe(path.string());
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find(path.string() + ":3:"), std::string::npos) << e.what();
  }
  std::ofstream(path) << "seed = 3\n";
  EXPECT_EQ(load_recipe(path.string(), {"train.epochs=4"}).train.epochs, 4);
  std::ofstream(path) << std::string(2 << 20, '#');
  try {
    load_recipe(path.string());
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.exit_code(), Exit::bad_recipe);
  }
  std::filesystem::remove(path);
}

TEST(TinyTwin, IsValidSmallAndOfTheSameKind) {
  std::vector<Recipe> recipes;
  for (const BuiltinRecipe& builtin : builtin_recipes()) recipes.push_back(load_recipe(std::string(builtin.name)));
  recipes.push_back(load_recipe(
      "fashion_mnist", {"data.source=synthetic", "data.shape=[224,224,3]", "model.channels=[64,128,256,512]",
                        "data.normalize.mean=[0.4,0.4,0.5]", "data.normalize.std=[0.2,0.2,0.3]", "data.augment.crop=30",
                        "data.augment.cutout=50", "data.augment.rotate=15"}));
  recipes.push_back(load_recipe(
      "fashion_mnist", {"data.source=synthetic", "data.shape=[1,1,5]", "model.family=mlp", "data.augment.crop=0",
                        "data.augment.cutout=1", "data.validation=0.9", "train.batch_size=1"}));
  recipes.push_back(
      load_recipe("fashion_mnist", {"data.source=idx", "data.path=/x", "data.classes=100", "train.accumulate=8"}));
  recipes.push_back(
      load_recipe("gpt_tiny", {"model.heads=7", "model.width=21", "data.sequence=100", "model.vocab=100"}));
  for (const Recipe& r : recipes) {
    const Recipe tiny = tiny_twin(r);
    EXPECT_NO_THROW(validate(tiny)) << to_toml(tiny);
    EXPECT_EQ(parse_recipe(to_toml(tiny), "x.toml"), tiny);
    EXPECT_EQ(tiny.model.family, r.model.family);
    EXPECT_EQ(tiny.optimizer, r.optimizer);
    EXPECT_LE(tiny.train.batch_size, 4);
    EXPECT_LE(tiny.train.steps, 4);
    EXPECT_TRUE(tiny.data.source == "synthetic" || tiny.data.source == "text");
    EXPECT_TRUE(tiny.data.path.empty());
  }
}

}  // namespace
}  // namespace lathe
