// Small helpers for texts that people type.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "recipe/recipe.h"

namespace lathe {

// "512MiB", "16GB" or a number of bytes; nothing where it is none.
std::optional<ByteSize> parse_size(std::string_view text);

// The word nearest to `wrong`, when it is near enough to be meant.
std::optional<std::string_view> did_you_mean(std::string_view wrong, std::span<const std::string_view> words);

}  // namespace lathe
