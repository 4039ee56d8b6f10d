// What a key means for one value: its text, its checks, and hints for typing errors.
#include <fmt/format.h>

#include <algorithm>

#include "base/did_you_mean.h"
#include "recipe/recipe_keys.h"

namespace lathe {
namespace {

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

Allowed allowed_of(const RecipeKey& key) {
  if (!key.choice || key.field) return key.allowed;
  Allowed names;
  for (const TableType& row : key.choice->rows()) names.choices.push_back(row.name);
  return names;
}

namespace {

// f(field), of the default.
template <class F>
std::string of_default(const RecipeKey& key, F&& f) {
  Recipe recipe;
  return f(key.field ? key.field->at(key.schema->defaults.get()) : key.member(recipe));
}

}  // namespace

std::string type_name(const RecipeKey& key) {
  return of_default(key, [](FieldPtr p) { return type_name(p); });
}

std::string allowed_text(const RecipeKey& key) {
  return of_default(key, [&](FieldPtr p) { return allowed_text(p, allowed_of(key)); });
}

std::string default_text(const RecipeKey& key) {
  return of_default(key, [&](FieldPtr p) { return value_text(p, key.allowed); });
}

std::string value_text(const RecipeKey& key, const Recipe& recipe) {
  return value_text(field_of(key, recipe), key.allowed);
}

std::optional<BadValue> check_value(const RecipeKey& key, const Recipe& recipe) {
  return check_value(field_of(key, recipe), allowed_of(key));
}

std::optional<std::string_view> did_you_mean_key(std::string_view path) {
  std::optional<std::string_view> best;
  int best_distance = std::numeric_limits<int>::max();
  const auto consider = [&](std::string_view word, int distance, int limit) {
    if (distance <= limit && distance < best_distance) best = word, best_distance = distance;
  };
  const std::string_view section = path.substr(0, path.size() - last_part(path).size());
  for (const RecipeKey* known : all_recipe_keys()) {
    const RecipeKey& key = *known;
    const std::string_view last = last_part(key.path);
    const std::string_view whole = key.path;
    const bool same_section = whole.substr(0, whole.size() - last.size()) == section;
    consider(key.path, edit_distance(path, key.path), allowed_distance(last_part(path)));
    // One more for another section, so that a near name of the same section wins.
    consider(key.path, word_distance(last_part(path), last) + (same_section ? 0 : 1),
             allowed_distance(last_part(path)));
    for (size_t dot = key.path.find('.'); dot != key.path.npos; dot = key.path.find('.', dot + 1)) {
      consider(whole.substr(0, dot), edit_distance(path, whole.substr(0, dot)), allowed_distance(last_part(path)));
    }
  }
  return best;
}

}  // namespace lathe
