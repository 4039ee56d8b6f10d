#include "recipe/recipe.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "io/hash.h"
#include "nn/step/loss.h"
#include "passes/pass.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

std::string text_of(const Recipe& r, std::string_view path) {
  const RecipeKey* key = find_recipe_key(r, path);
  return key ? value_text(*key, r) : "no such key";
}

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
  EXPECT_EQ(text_of(r, "model.channels"), "[8]");
  EXPECT_EQ(text_of(r, "model.batch_norm"), "false");
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

// How long a run is, is one choice of two keys.
TEST(RecipeSets, EpochsTakeThePlaceOfSteps) {
  const std::string text = "[train]\nsteps = 7\n";
  const auto with = [&](const Sets& sets) { return parse_recipe(text, "a.toml", sets).train; };
  EXPECT_EQ(with({}).steps, 7);
  for (const int64_t epochs : {0, 3}) {
    const TrainRecipe t = with({fmt::format("train.epochs={}", epochs)});
    EXPECT_EQ(t.steps, 0);
    EXPECT_EQ(t.epochs, epochs);
  }
  EXPECT_EQ(with({"train.steps=9"}).steps, 9);
  EXPECT_THROW(with({"train.epochs=3", "train.steps=9"}), UserError);
  EXPECT_EQ(to_toml(parse_recipe(text, "a.toml", {"train.epochs=3"})),
            to_toml(parse_recipe("[train]\nepochs = 3\n", "a.toml", {})));
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
  const std::pair<const char*, const char*> lists[] = {{"model.hidden=[1, 2]", "[1, 2]"},
                                                       {"model.hidden=1,2", "[1, 2]"},
                                                       {"model.hidden=7", "[7]"},
                                                       {"model.hidden=[]", "[]"}};
  for (const auto& [set, text] : lists) EXPECT_EQ(text_of(with({set}), "model.hidden"), text);
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
  r.data.source = SourceSpec("idx");
  EXPECT_EQ(parse_recipe(to_toml(r), "x.toml"), r) << to_toml(r);
  r.data.path.clear();
  r.data.normalize = {{0.1, 1e-300, -3}, {1e5, 1.0 / 3, 2}};
  r.data.source = SourceSpec("synthetic", {{"shape", Ints{5, 6, 3}}});
  r.model.params.set("hidden", Ints{});
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
  for (const RecipeKey* key : recipe_keys(r)) {
    const std::string line = "\n" + key->path.substr(key->path.rfind('.') + 1) + " = ";
    EXPECT_NE(("\n" + text).find(line), std::string::npos) << key->path;
  }
}

// Another value.
void change(FieldPtr field) {
  std::visit(
      [](auto* p) {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, bool>)
          *p = !*p;
        else if constexpr (std::is_same_v<T, std::string>)
          *p += "x";
        else if constexpr (std::is_same_v<T, ByteSize>)
          p->bytes += 5;
        else if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Doubles>)
          p->push_back(3);
        else if constexpr (std::is_same_v<T, Strings>)
          p->push_back("x");
        else if constexpr (std::is_same_v<T, Tables>)
          p->push_back(ParamSet(ParamGroup{{"*.bias"}, 2, 0.5, true}));
        else if constexpr (std::is_same_v<T, std::optional<double>>)
          *p = p->value_or(0) + 1;
        else
          *p += 1;
      },
      field);
}

// Of every source, every family and every loss.
TEST(Recipe, EachKeyIsPrintedCheckedAndCompared) {
  std::vector<Recipe> bases{parse_recipe("", "x.toml")};
  for (const ModelFamily& f : model_families()) bases.push_back(bases[0]), bases.back().model = ModelSpec(f.name());
  for (const LossRule& l : loss_rules()) bases.push_back(bases[0]), bases.back().train.loss = LossSpec(l.name());
  for (const SourceRule* s : source_rules())
    bases.push_back(bases[0]), bases.back().data.source = SourceSpec(s->facts.name);
  const std::string reference = recipe_reference();
  for (const Recipe& base : bases) {
    SCOPED_TRACE(base.model.family + " " + base.train.loss.name + " " + base.data.source.name);
    for (const RecipeKey* key : recipe_keys(base)) {
      Recipe changed = base;
      change(field_of(*key, changed));
      EXPECT_NE(changed, base) << key->path;
      const auto differences = diff(base, changed);
      ASSERT_EQ(differences.size(), 1u) << key->path;
      EXPECT_EQ(differences[0].key, key->path);
      EXPECT_NE(differences[0].a, differences[0].b);
      EXPECT_FALSE(check_value(*key, base)) << key->path;
      EXPECT_FALSE(key->help.empty());
      EXPECT_NE(reference.find("| `" + key->path + "`"), std::string::npos) << key->path;
    }
    EXPECT_TRUE(diff(base, base).empty());
  }
  // Each row that has a setting is named with it.
  for (const KeyChoice& choice : key_choices())
    for (const TableType& row : choice.rows())
      for (const Field& f : row.schema().fields) {
        const std::string path = "| `" + std::string(choice.section()) + std::string(f.name) + "` ";
        bool named = false;
        for (size_t at = reference.find(path); at != reference.npos; at = reference.find(path, at + 1))
          named |= reference.substr(at, reference.find('\n', at) - at).find(row.name) != std::string::npos;
        EXPECT_TRUE(named) << path << row.name;
      }
  // What one family has and the other has not, where it is not at its default.
  Recipe other = bases[0];
  other.model = ModelSpec("cnn", {{"dense", 7}});
  const auto differences = diff(bases[0], other);
  ASSERT_EQ(differences.size(), 2u);
  EXPECT_EQ(differences[0].key, "model.family");
  EXPECT_EQ(differences[1].key + " " + differences[1].a + " " + differences[1].b, "model.dense - 7");
}

struct ScalesOptions {
  double tenfold = 10;
  bool fast = false;
  static void fields(auto&& f) {
    f("train.mine.tenfold", &ScalesOptions::tenfold, allow::range(1, 99), "of a custom pass");
    f("train.custom_fast", &ScalesOptions::fast, {}, "", is_large, "train.mine.tenfold > 10")
        .listed_after("train.epochs");
  }
  static bool is_large(const ScalesOptions& o) { return o.tenfold > 10; }
  static void check(const PassOptions& o, RuleReport& report) {
    if (o.get<ScalesOptions>().tenfold == 13) report.fail({"train.mine.tenfold"}, "not 13");
  }
};

struct SecondScalesOptions {
  double tenfold = 1;
  static void fields(auto&& f) { f("train.mine.tenfold", &SecondScalesOptions::tenfold, "the same key again"); }
};

// Options of a pass that a program adds are keys like all others; without them recipes are what they were.
TEST(Recipe, ProgramsAddOptions) {
  const std::string hash = recipe_hash(Recipe{}, {});
  EXPECT_THROW(parse_recipe("train.mine.tenfold = 20", "x.toml"), UserError);
  register_options(kOptions<ScalesOptions>);
  register_options(kOptions<ScalesOptions>);
  EXPECT_THROW(register_options(kOptions<SecondScalesOptions>), UserError);  // the key is taken
  EXPECT_EQ(recipe_hash(Recipe{}, {}), hash);
  const Recipe r = parse_recipe("train.mine.tenfold = 20", "x.toml", {"train.custom_fast=true"});
  EXPECT_EQ(r.passes.get<ScalesOptions>().tenfold, 20);
  EXPECT_TRUE(r.passes.get<ScalesOptions>().fast);
  EXPECT_NE(recipe_hash(r, {}), hash);
  const std::string text = to_toml(r);
  EXPECT_NE(text.find("\nepochs = 10\ncustom_fast = true\n"), text.npos) << text;
  EXPECT_NE(text.find("\n[train.mine]\ntenfold = 20.0\n"), text.npos) << text;
  EXPECT_EQ(parse_recipe(text, "x.toml"), r);
  EXPECT_NE(r, Recipe{});
  const auto error = [](const Sets& sets) -> std::string {
    try {
      parse_recipe("", "x.toml", sets);
      return "";
    } catch (const UserError& e) {
      return e.what();
    }
  };
  EXPECT_NE(error({"train.mine.tenfold=100"}).find("expected a number from 1 to 99, got 100"), std::string::npos);
  EXPECT_NE(error({"train.mine.tenfold=13"}).find("train.mine.tenfold: not 13"), std::string::npos);
  EXPECT_NE(error({"train.custom_fast=true"}).find("it is for train.mine.tenfold > 10 only"), std::string::npos);
  EXPECT_NE(error({"train.mine.tenfolt=2"}).find("did you mean \"train.mine.tenfold\"?"), std::string::npos);
}

// Recipes that earlier versions wrote out have the keys of all families, with their defaults.
TEST(Recipe, KeysOfOtherFamiliesMayHaveTheirDefaults) {
  const Recipe r = parse_recipe(
      "[model]\nfamily = \"cnn\"\nhidden = [512, 512]\nlayers = 4\npatch = 4\ncell = \"lstm\"\n"
      "rotary_base = 10000.0\nchannels = [3]\n[train]\nmargin = 0.5\nfocal_gamma = 2.0\n",
      "x.toml");
  EXPECT_EQ(r.model, ModelSpec("cnn", {{"channels", Ints{3}}}));
  EXPECT_THROW(parse_recipe("[model]\nfamily = \"cnn\"\nlayers = 5", "x.toml"), UserError);
  EXPECT_THROW(parse_recipe("", "x.toml", {"model.layers=4"}), UserError);
}

TEST(Recipe, WhatIsChosenBringsItsKeys) {
  const std::string file = "[model]\nfamily = \"gpt\"\nwidth = 64\nnorm = \"rms\"\n[data]\nsource = \"text\"\n";
  const Sets images{"data.source=fashion_mnist"};
  const auto with = [&](Sets sets) {
    sets.insert(sets.begin(), images.begin(), images.end());
    return parse_recipe(file, "x.toml", sets);
  };
  // Settings that the new family has stay, the others go; the order of sets does not matter.
  const Recipe vit = with({"model.pool=mean", "model.family=vit"});
  EXPECT_EQ(text_of(vit, "model.width"), "64");
  EXPECT_EQ(text_of(vit, "model.pool"), "\"mean\"");
  EXPECT_EQ(text_of(vit, "model.norm"), "no such key");
  EXPECT_EQ(parse_recipe(to_toml(vit), "x.toml"), vit);
  // A set may give a setting of the file its effect.
  EXPECT_EQ(text_of(parse_recipe("[model]\npatch = 7", "x.toml", {"model.family=vit"}), "model.patch"), "7");
  EXPECT_EQ(text_of(parse_recipe("", "x.toml", {"train.loss=focal", "train.focal_gamma=3"}), "train.focal_gamma"),
            "3.0");
  const Recipe layers = parse_recipe("[model]\nfamily = \"vit\"\nlayers = 6", "x.toml",
                                     {"model.family=layers", "model.layers=[{type=\"dense\",out=0}]"});
  EXPECT_EQ(text_of(layers, "model.layers"), "[{ type = \"dense\", out = 0 }]");
  // In code both are set.
  Recipe r = parse_recipe("", "x.toml");
  r.model.family = "cnn";
  EXPECT_THROW(validate(r), UserError);
  r.model = ModelSpec("cnn", {{"dense", 7}});
  EXPECT_NO_THROW(validate(r));
}

TEST(Recipe, GroupsReadAndPrint) {
  const std::string text =
      "[[optimizer.groups]]\nmatch = [\"*.bias\", \"*norm*\"]\nweight_decay = 0\n"
      "[[optimizer.groups]]\nmatch = \"fc1.*\"\nlr_scale = 0.1\nfrozen = true\n";
  const Tables groups{ParamGroup{{"*.bias", "*norm*"}, 1, 0.0, false}, ParamGroup{{"fc1.*"}, 0.1, {}, true}};
  const Recipe r = parse_recipe(text, "x.toml");
  EXPECT_EQ(r.optimizer.groups, groups);
  EXPECT_EQ(parse_recipe(to_toml(r), "x.toml"), r) << to_toml(r);
  const Recipe set = parse_recipe("", "x.toml", {"optimizer.groups=[{match=\"fc1.*\",lr_scale=0.1,frozen=true}]"});
  EXPECT_EQ(set.optimizer.groups, Tables(1, groups[1]));
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
  EXPECT_EQ(load_recipe(std::string(kDefaultRecipe)).data.source.name, "fashion_mnist");
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
    EXPECT_TRUE(tiny.data.source.name == "synthetic" || tiny.data.source.name == "text");
    EXPECT_TRUE(tiny.data.path.empty());
  }
}

}  // namespace
}  // namespace lathe
