// The key table of recipes and what is derived from a row: text of a value, text of what is allowed, checks.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "nn/step/step.h"
#include "recipe/recipe.h"
#include "recipe/words.h"

namespace lathe {

using RecipeField =
    std::variant<bool*, int64_t*, double*, std::string*, Ints*, Doubles*, ByteSize*, LayersRecipe*, Groups*>;

// When a key has an effect at all; a key that cannot have one is not accepted in silence.
struct KeyUse {
  bool (*used)(const Recipe&) = nullptr;  // null: always
  std::string_view with{};                // what it needs, in words
  std::string (*needs)() = nullptr;       // the same where a table says it; then `with` is empty
};

struct RecipeKey {
  std::string_view path;  // "optimizer.lr"
  RecipeField (*field)(Recipe&);
  bool stable;   // scripts may rely on it
  bool numbers;  // changes what a run computes: fixed for a run and part of its hash. The others say how long, how
                 // fast, where or how verbose
  KeyUse use;
  Allowed allowed;
  std::string_view help;
};

std::span<const RecipeKey> recipe_keys();  // grouped by section, in the order of printing
const RecipeKey* find_recipe_key(std::string_view path);
bool is_used(const RecipeKey& key, const Recipe& recipe);
void reset_unused(Recipe& recipe);  // keys without effect get their defaults, so that equal runs have equal recipes
std::string needs_text(const RecipeKey& key);  // what it needs to have an effect
// Keys whose default follows from other keys get it, where `written` is false.
void fill_defaults(Recipe& recipe, const std::function<bool(std::string_view)>& written);
bool is_recipe_section(std::string_view path);  // "data", "data.augment", ...

std::string type_name(const RecipeKey& key);                         // "integer", "list of numbers", ...
std::string allowed_text(const RecipeKey& key);                      // "an integer from 1 to 10"
std::string value_text(const RecipeKey& key, const Recipe& recipe);  // as TOML

std::optional<BadValue> check_value(const RecipeKey& key, const Recipe& recipe);  // what is wrong, if anything

// did_you_mean among the keys: typing errors anywhere in the path, or the right name in the wrong section.
std::optional<std::string_view> did_you_mean_key(std::string_view path);

bool takes_tokens(const Recipe& recipe);  // the model family does; the others take images
Task task_of(const Recipe& recipe);       // by data.target and train.loss
// Of the model for each sample, token or pixel; `classes`: as many as the data have, of classes, numbers or channels.
int64_t outputs_of(const Recipe& recipe, int64_t classes);

// Rules that join several keys. Calls fail(keys, message) for each broken one; the first key is the one to name.
void check_rules(const Recipe& recipe, RuleReport& report);
// The rules that need the shape of the images (height, width, channels).
void check_image_rules(const Recipe& recipe, const Ints& shape, RuleReport& report);

}  // namespace lathe
