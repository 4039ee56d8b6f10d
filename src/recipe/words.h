// Texts that people type, as values.
#pragma once

#include <optional>
#include <string_view>

#include "recipe/recipe.h"

namespace lathe {

// "512MiB", "16GB" or a number of bytes; nothing where it is none.
std::optional<ByteSize> parse_size(std::string_view text);

}  // namespace lathe
