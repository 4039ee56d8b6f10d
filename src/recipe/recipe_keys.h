// The keys of recipes and what is derived from a key: text of a value, text of what is allowed, checks. Most keys are
// members of sections: rows of the table in recipe_keys.cpp. Others are options of passes, which stand among them
// (passes/techniques/table.h), and the settings of what a key chooses: of the data source, of the model family, of the
// loss.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "nn/step/step.h"
#include "recipe/recipe.h"

namespace lathe {

// When a key has an effect at all; a key that cannot have one is not accepted in silence.
struct KeyUse {
  bool (*used)(const Recipe&) = nullptr;  // null: always
  std::string_view with{};                // what it needs, in words
  std::string (*needs)() = nullptr;       // the same where a table says it; then `with` is empty
};

// A key whose value is the name of a row of a table; the settings of the row are keys of the same section, listed
// behind it or behind the key of a section that a field names (Field::after).
struct KeyChoice {
  std::string_view key;                       // "model.family"
  std::string& (*name)(Recipe&);              // its value
  ParamSet& (*params)(Recipe&);               // the settings of the row
  std::vector<TableType> (*rows)();           // names and schemas, custom ones included
  std::vector<TableType> (*listed)();         // those that a recipe may choose from before a program adds some
  bool (*used)(const Recipe&, const Field&);  // whether a setting has an effect, beside its own condition; null: yes
  std::string_view with;                      // what that needs, in words
  // A hint for a name that is not known, where programs may add rows; then nothing is known of its settings either.
  std::string_view foreign;

  std::string_view section() const { return key.substr(0, key.rfind('.') + 1); }  // "model."
  const Schema* schema_of(std::string_view row) const;                            // or null
};
std::span<const KeyChoice> key_choices();  // data.source, model.family, train.loss

enum class KeyEffect {  // What another value changes.
  how,                  // how long, how fast, where or how verbose
  numbers,              // what a run computes: fixed for a run, and part of its hash
  meaning,              // that, and what the outputs of the net stand for: fixed for a trained net
};

struct RecipeKey {
  std::string path;             // "optimizer.lr"
  FieldPtr (*member)(Recipe&);  // of a section; null: a field of a struct
  bool stable;                  // scripts may rely on it
  KeyEffect effect;             // of another value
  KeyUse use;
  Allowed allowed;
  std::string_view help;
  const KeyChoice* choice = nullptr;  // of which it is the key, or a setting of a row
  const Field* field = nullptr;       // of a struct: a setting, or without `choice` an option of a pass
  const Schema* schema = nullptr;     // that the field is of

  bool is_setting() const { return choice && field; }  // of what `choice` chooses
};
using RecipeKeys = std::vector<const RecipeKey*>;

const RecipeKeys& section_keys();       // the table, and in their places among its rows the options of passes
RecipeKeys recipe_keys(const Recipe&);  // with those of what it chooses; grouped by section, in the order of printing
RecipeKeys all_recipe_keys();           // of every source, family and loss: a path may be there several times
const RecipeKey* find_recipe_key(const Recipe&, std::string_view path);                 // or null
const RecipeKey* find_section_key(std::string_view path);                               // of section_keys(); or null
const RecipeKey* find_setting(const KeyChoice&, const Schema&, std::string_view path);  // of a row; or null
// Of the names and texts of the settings of a row that this program does not have.
ParamSet foreign_settings(const std::vector<std::pair<std::string, std::string>>& settings);
// The choice of which some row has the setting; or null.
const KeyChoice* find_choice(std::string_view path);
FieldPtr field_of(const RecipeKey&, Recipe&);        // to read or write
FieldPtr field_of(const RecipeKey&, const Recipe&);  // to read
// Gives each choice whose name changed the settings of its row, with their defaults; true where there was one.
bool settle_choices(Recipe&);

RecipeKeys with_pass_keys(RecipeKeys rows);  // and behind the keys that their fields name the options of passes

bool is_used(const RecipeKey& key, const Recipe& recipe);
void reset_unused(Recipe& recipe);  // keys without effect get their defaults, so that equal runs have equal recipes
std::string needs_text(const RecipeKey& key);  // what it needs to have an effect
// The rows that have a setting, in words: `model.family = "cnn" or "unet"`. Arrays of a program are left out where
// there are others.
std::string rows_text(const KeyChoice&, std::span<const std::string_view> rows);
// Keys whose default follows from other keys get it, where `written` is false.
void fill_defaults(Recipe& recipe, const std::function<bool(std::string_view)>& written);
bool is_recipe_section(std::string_view path);  // "data", "data.augment", ...

Allowed allowed_of(const RecipeKey& key);                                         // choices are those of the moment
std::string type_name(const RecipeKey& key);                                      // "integer", "list of numbers", ...
std::string allowed_text(const RecipeKey& key);                                   // "an integer from 1 to 10"
std::string default_text(const RecipeKey& key);                                   // as TOML
std::string value_text(const RecipeKey& key, const Recipe& recipe);               // as TOML
std::optional<BadValue> check_value(const RecipeKey& key, const Recipe& recipe);  // what is wrong, if anything

// did_you_mean among the keys: typing errors anywhere in the path, or the right name in the wrong section.
std::optional<std::string_view> did_you_mean_key(std::string_view path);

bool takes_tokens(const Recipe& recipe);  // the model family does; the others take images
Task task_of(const Recipe& recipe);       // by data.target and train.loss
// Of the model for each sample, token or pixel; `classes`: as many as the data have, of classes, numbers or channels.
int64_t outputs_of(const Recipe& recipe, int64_t classes);

// Rules that join several keys: each broken one goes to the report.
void check_rules(const Recipe& recipe, RuleReport& report);
// The rules that need the shape of the images (height, width, channels).
void check_image_rules(const Recipe& recipe, const Ints& shape, RuleReport& report);

}  // namespace lathe
