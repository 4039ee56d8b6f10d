// TOML from outside: recipes and device specs. All text goes through parse_toml, which toml++ alone is not safe for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "recipe/recipe_toml.h"

namespace lathe {

struct TomlError {                // Thrown for text that is no TOML.
  uint32_t line = 0, column = 0;  // from 1
  std::string message;            // what was expected, fit to be printed
};

// TomlError also for text that is nested too deep to be parsed, or too long.
toml::table parse_toml(std::string_view text, size_t most_bytes);

}  // namespace lathe
