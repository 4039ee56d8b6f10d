// Text too deep for a recursive parser.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lathe {

struct TooDeep {
  uint32_t line = 0, column = 0;  // from 1
  std::string message;
};

// Deep nesting would exhaust the stack of a recursive parser or destructor; recipes need three levels. Counts open
// brackets, and dots since the last separator (the depth of a dotted key), outside of strings and comments.
std::optional<TooDeep> find_too_deep(std::string_view toml);

}  // namespace lathe
