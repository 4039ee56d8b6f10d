// Checks of a recipe's values, keys and rules; what is wrong goes to RecipeErrors.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "recipe/recipe.h"
#include "recipe/recipe_errors.h"
#include "recipe/recipe_keys.h"

namespace lathe {

void check_key(const RecipeKey&, RecipeOrigin, Recipe&, RecipeErrors&);  // its value
void unknown_key(const std::string& path, RecipeOrigin, RecipeErrors&);
void check_recipe(Recipe&, RecipeErrors&);  // values and rules of the recipe as it stands
// Keys without effect: errors where --set wrote them or `useless` names them; all get their defaults.
void check_use(Recipe&, std::span<const std::string_view> useless, RecipeErrors&);

}  // namespace lathe
