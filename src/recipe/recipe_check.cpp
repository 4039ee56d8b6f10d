#include "recipe/recipe_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "backend/backend.h"
#include "base/did_you_mean.h"

namespace lathe {

void check_key(const RecipeKey& key, RecipeOrigin origin, Recipe& recipe, RecipeErrors& errors) {
  const auto bad = check_value(key, recipe);
  if (!bad) return;
  std::string path(key.path);
  if (bad->item) path += fmt::format("[{}]", *bad->item);
  std::string hint;
  const FieldPtr field = field_of(key, recipe);
  const Allowed allowed = allowed_of(key);
  if (const auto* text = std::get_if<std::string*>(&field)) {
    static const std::vector<std::string_view> devices = [] {
      std::vector<std::string_view> names{"auto"};
      for (const Backend* b : backends()) names.push_back(b->name());
      return names;
    }();
    const auto words = key.path == "device.name" ? std::span<const std::string_view>(devices)
                                                 : std::span<const std::string_view>(allowed.choices);
    if (const auto word = did_you_mean(**text, words))
      hint = fmt::format("; did you mean \"{}\"?", *word);
    else if (key.choice && !key.field && !key.choice->foreign.empty())
      hint = fmt::format("; {}", key.choice->foreign);
  }
  errors.add(origin, path, fmt::format("expected {}, got {}{}", allowed_text(key), shown(bad->got), hint));
}

void unknown_key(const std::string& path, RecipeOrigin origin, RecipeErrors& errors) {
  std::string hint;
  if (!errors.full()) {
    if (const auto word = did_you_mean_key(path)) hint = fmt::format("; did you mean \"{}\"?", *word);
  }
  errors.add(origin, path, "unknown key" + hint);
}

void check_recipe(Recipe& recipe, RecipeErrors& errors) {
  for (const KeyChoice& choice : key_choices()) {
    const Schema* schema = choice.schema_of(choice.name(recipe));
    if (schema && schema != &choice.params(recipe).schema())
      errors.fail({choice.key}, fmt::format("the settings are not those of \"{}\"; set both, like ModelSpec(name), "
                                            "LossSpec(name) and SourceSpec(name)",
                                            choice.name(recipe)));
  }
  for (const RecipeKey* key : recipe_keys(recipe)) {
    if (!recipe.origins.keys.count(key->path)) check_key(*key, {}, recipe, errors);
  }
  // Rules read several values: they say nothing useful while one of them is wrong.
  if (errors.count() == 0 && !is_foreign(recipe)) check_rules(recipe, errors);
}

void check_use(Recipe& recipe, std::span<const std::string_view> useless, RecipeErrors& errors) {
  if (errors.count() > 0) return;
  for (const RecipeKey* key : recipe_keys(recipe)) {
    const auto found = recipe.origins.keys.find(key->path);
    if (found == recipe.origins.keys.end() || is_used(*key, recipe)) continue;
    const bool in_vain = found->second.set || std::find(useless.begin(), useless.end(), key->path) != useless.end();
    if (in_vain)
      errors.add(found->second, key->path,
                 fmt::format("has no effect: it is for {} only; remove it", needs_text(*key)));
  }
  reset_unused(recipe);
}

void validate(const Recipe& recipe) {
  Recipe copy = recipe;
  RecipeErrors errors(copy.origins);
  copy.origins = {"recipe", {}};
  check_recipe(copy, errors);
  errors.finish();
}

}  // namespace lathe
