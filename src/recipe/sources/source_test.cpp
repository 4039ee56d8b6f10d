#include "recipe/sources/source.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "recipe/recipe_keys.h"
#include "recipe/sources/preparation.h"

namespace lathe {
namespace {

// What a recipe with these settings is refused with; "": nothing.
std::string refusal(const std::vector<std::string>& sets) {
  try {
    load_recipe("fashion_mnist", sets);
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

bool says(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

TEST(Sources, RowsAreComplete) {
  std::set<std::string_view> names;
  for (const SourceRule* rule : source_rules()) {
    const SourceFacts& f = rule->facts;
    EXPECT_TRUE(names.insert(f.name).second) << f.name;
    EXPECT_EQ(find_source(f.name), rule);
    EXPECT_TRUE(f.targets.has(data::LabelKind::class_index)) << f.name;
    EXPECT_EQ(rule->open == nullptr, f.own.has_value()) << f.name;
    EXPECT_EQ(rule->describe == nullptr, f.own.has_value()) << f.name;
    EXPECT_TRUE(f.reads_path || f.path.empty()) << f.name;
    const bool sized = SourceSpec(f.name).params.find<Ints>("shape") != nullptr;
    EXPECT_TRUE(sized || !f.scales) << f.name;
    EXPECT_FALSE(sized && f.shape[0] > 0) << f.name;
    EXPECT_TRUE(!f.table || (f.numbers && rule->learn && rule->read_file)) << f.name;
    EXPECT_EQ(rule->schema().find("standardize") != nullptr, f.numbers) << f.name;
  }
  const std::vector<std::string_view> allowed = allowed_of(*find_section_key("data.source")).choices;
  EXPECT_EQ(std::set<std::string_view>(allowed.begin(), allowed.end()), names);
}

TEST(Sources, UnknownNameIsAnErrorWithTheKnownOnes) {
  EXPECT_EQ(find_source("nothing"), nullptr);
  Recipe r;
  r.data.source.name = "nothing";
  EXPECT_FALSE(is_custom_data(r));
  try {
    source_of(r);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_TRUE(says(e.what(), "data.source: expected one of fashion_mnist, synthetic, text")) << e.what();
  }
}

TEST(Sources, DescribesWhatOpenOpens) {
  for (const char* name : {"synthetic", "text"}) {
    Recipe r = load_recipe(name == std::string("text") ? "gpt_tiny" : "fashion_mnist");
    r.data.source = SourceSpec(name);
    r.data.path.clear();
    r.data.train_samples = 0;
    const SourceRule& rule = source_of(r);
    for (const data::Split split : {data::Split::train, data::Split::test}) {
      const data::SourceInfo info = rule.describe(r, split);
      Preparation learned;
      const auto source = rule.open(r, split, learned);
      EXPECT_EQ(source->size(), info.size) << name;
      EXPECT_EQ(source->fields()[0].type, info.sample) << name;
      EXPECT_EQ(source->fields()[1].type, info.label) << name;
      EXPECT_EQ(source->resident_bytes(), info.resident_bytes) << name;
    }
  }
}

// The lists in errors are of the table.
TEST(Sources, ErrorsListThoseThatFit) {
  EXPECT_TRUE(says(refusal({"data.target=mask", "data.classes=2"}),
                   "expected \"png\", \"npy\", \"synthetic\" or arrays as data.source for \"mask\", got "
                   "\"fashion_mnist\""));
  EXPECT_TRUE(says(refusal({"data.target=value"}),
                   "expected \"csv\", \"npy\", \"synthetic\" or arrays as data.source for \"value\", got "
                   "\"fashion_mnist\""));
  EXPECT_TRUE(says(refusal({"data.source=csv", "data.path=a", "data.target=image"}),
                   "expected images as data.source for \"image\", got \"csv\""));
  EXPECT_TRUE(
      says(refusal({"data.source=text"}),
           "expected images (\"fashion_mnist\", \"synthetic\", \"idx\", \"cifar\", \"png\") or numbers (\"csv\", "
           "\"npy\") for model.family = \"cnn\", got \"text\""));
  EXPECT_TRUE(says(refusal({"data.classes=9"}), "expected 10 for data.source = \"fashion_mnist\", got 9"));
  EXPECT_TRUE(says(refusal({"data.source=png", "data.path=a", "data.shape=[28,28,2]"}),
                   "data.shape: expected 1 or 3 channels of PNG files, got 2"));
  EXPECT_TRUE(says(refusal({"data.source=png", "data.path=a", "data.target=mask", "data.classes=3"}),
                   "expected 2, the background included, for data.target = \"mask\", got 3"));
  EXPECT_TRUE(says(refusal({"data.source=npy", "data.path=a", "data.target=mask", "data.classes=1"}),
                   "expected 2 to 256, the background included, for data.target = \"mask\", got 1"));
}

TEST(Sources, KeysSayWhichSourcesReadThem) {
  const auto expect = [](const std::string& set, const std::string& needs) {
    const std::string text = refusal({set});
    EXPECT_TRUE(says(text, "has no effect: it is for " + needs + " only; remove it")) << text;
  };
  expect("data.shape=[8,8,1]", "data.source = \"synthetic\" or \"png\"");
  expect("data.row=2", "data.source = \"csv\" or \"npy\"");
  expect("data.label=x", "data.source = \"csv\"");
  expect("data.max_pixels=9", "data.source = \"png\"");
  expect("data.sequence=9", "data.source = \"text\"");
  expect("data.noise=9", "data.target = \"image\", or \"mask\" of data.source = \"png\"");
  expect("data.target_mean=9", "data.source = \"arrays\" or \"pixel_arrays\"");
}

}  // namespace
}  // namespace lathe
