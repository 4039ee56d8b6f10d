// Where samples come from: a source is one file of this folder and one row of the table in source.cpp. Its file has a
// struct of static functions:
//
//   struct Csv {
//     static constexpr SourceFacts facts{.name = "csv", .targets = {LabelKind::class_index}, .path = "a csv file"};
//     struct Params { ... };  // keys of its own, listed in `fields` (base/schema.h); none: it has only what all have
//     static data::SourceInfo describe(const Recipe&, data::Split);
//     static std::shared_ptr<const data::Source> open(const Recipe&, data::Split, Preparation& learned);
//   };
//   constinit const SourceRule csv_source = make_source<Csv>();
//
// It may also have (docs/adding-a-source.md): check, used, class_names, has_test, learn and
// read_file.
#pragma once

#include <array>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/schema.h"
#include "data/samples.h"
#include "data/source.h"
#include "nn/families/model.h"
#include "recipe/recipe.h"

namespace lathe {

struct Preparation;  // of samples (recipe/sources/preparation.h)

enum class SourceTokens {
  none,         // samples are no tokens
  per_sample,   // they may be tokens, with one label per sample
  per_position  // they are tokens, each with a label
};

// What is known of a source before anything is opened: rules and the uses of keys ask it.
struct SourceFacts {
  std::string_view name{};                   // data.source in recipes
  data::LabelKinds targets{};                // what data.target may be
  std::string_view path{};                   // what data.path must be, in words; empty: it may be empty
  SourceTokens tokens = SourceTokens::none;  // which family it is for
  bool reads_path = true;                    // data.path
  std::optional<DType> own{};                // arrays of a program, with such samples: no recipe opens them
  bool generates = false;                    // makes samples where no file is named
  bool images = true;                        // samples may be images: data.normalize, data.augment
  bool numbers = false;                      // samples may be numbers
  bool table = false;                        // samples are rows of a table; learns Preparation::table
  bool scales = false;                       // images of any size become those of data.shape
  bool noisy_masks = false;                  // data.noise is on the images of masks too
  std::array<int64_t, 3> shape{};            // of every image, where it is always the same; else zeros
  int64_t classes = 0;                       // of labels, where there are always as many; else 0
  int64_t mask_classes = 0;                  // of masks, likewise
};

// Each token has a label, the next one; there is no data.target.
constexpr bool is_text(const SourceFacts& f) { return f.tokens == SourceTokens::per_position; }

struct SourceRule {                                     // A row of the table.
  SourceFacts facts;                                    // asked without opening anything
  const Schema& (*schema)() = schema_of<NoFields>;      // of its settings
  bool (*used)(const Recipe&, const Field&) = nullptr;  // whether a setting has an effect; null: always
  // What `open` would open. Null, as `open` is, for arrays of a program. A Misfit names keys that do not fit the files.
  data::SourceInfo (*describe)(const Recipe&, data::Split) = nullptr;
  // `learned` gets what is learned from the files.
  std::shared_ptr<const data::Source> (*open)(const Recipe&, data::Split, Preparation& learned) = nullptr;
  void (*check)(const Recipe&, RuleReport&) = nullptr;  // rules of its own
  // Of labels, known without reading samples; null: there are none.
  std::vector<std::string> (*class_names)(const Recipe&) = nullptr;
  bool (*has_test)(const Recipe&) = nullptr;  // whether there is a test set; null: always
  // What `open` would learn of training data; null: nothing but the names of classes.
  void (*learn)(const Recipe&, Preparation& learned) = nullptr;
  // Samples of another file, prepared as the source's own; nothing: the file is of another kind. Null: always another.
  std::optional<data::Samples> (*read_file)(const Recipe&, const Preparation&, const std::string& path) = nullptr;
};

template <class T>
constexpr SourceRule make_source() {  // the row of a struct of static functions (top of the file)
  SourceRule rule{.facts = T::facts};
  if constexpr (requires { typename T::Params; }) rule.schema = schema_of<typename T::Params>;
  if constexpr (requires { &T::used; }) rule.used = T::used;
  if constexpr (!T::facts.own) {
    rule.describe = T::describe;
    rule.open = T::open;
  }
  if constexpr (requires { &T::check; }) rule.check = T::check;
  if constexpr (requires { &T::class_names; }) rule.class_names = T::class_names;
  if constexpr (requires { &T::has_test; }) rule.has_test = T::has_test;
  if constexpr (requires { &T::learn; }) rule.learn = T::learn;
  if constexpr (requires { &T::read_file; }) rule.read_file = T::read_file;
  return rule;
}

std::span<const SourceRule* const> source_rules();     // the table
const SourceRule* find_source(std::string_view name);  // or null
const SourceRule& source_of(const Recipe&);            // UserError listing the known ones
// Of data.source; of an unknown name, which is an error of its own, those of files of images.
const SourceFacts& facts_of(const Recipe&);
// Of the sources for which `wanted` is true, arrays of a program left out.
std::vector<std::string_view> source_names(bool (*wanted)(const SourceFacts&));
SourceSpec own_source(DType sample);       // of arrays of a program with such samples
SourceSpec generated_source(bool tokens);  // of samples that are made: text, or images
int64_t sequence_of(const Recipe&);        // tokens per sample: what the source says, else what the family takes

// For the files of this folder.
int64_t wanted_samples(const Recipe&, data::Split);  // 0: all
data::LabelKind source_target(const Recipe&);        // of the source itself: image is what noise makes of label
TokenInput tokens_of(const Recipe&);                 // of the family; one for images has none
Allowed short_text(std::string_view pattern);        // at most 4096 bytes, none of them 0; in words

}  // namespace lathe
