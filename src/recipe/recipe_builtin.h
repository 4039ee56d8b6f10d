// The recipes of recipes/*.toml, embedded by extra.cmake in a generated source.
#pragma once

#include <span>

#include "recipe/recipe.h"

namespace lathe {

std::span<const BuiltinRecipe> embedded_recipes();

}  // namespace lathe
