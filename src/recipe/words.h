// Small helpers for texts that people type.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "base/schema.h"

namespace lathe {

// The word nearest to `wrong`, when it is near enough to be meant.
std::optional<std::string_view> did_you_mean(std::string_view wrong, std::span<const std::string_view> words);

}  // namespace lathe
