#include "recipe/toml_depth.h"

#include <fmt/format.h>

#include <algorithm>

namespace lathe {
namespace {

constexpr int kMaxBrackets = 16;
constexpr int kMaxDots = 8;

}  // namespace

std::optional<TooDeep> find_too_deep(std::string_view text) {
  uint32_t line = 1, column = 0;
  int brackets = 0, dots = 0;
  std::string_view closing;  // of the string being read
  bool comment = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    ++column;
    if (c == '\n') {
      ++line;
      column = 0;
      comment = false;
      if (closing.size() == 1) closing = {};  // an error that the parser will name
      dots = 0;
    } else if (comment) {
    } else if (!closing.empty()) {
      if (c == '\\' && closing[0] == '"') {
        ++i;
        ++column;
        if (i < text.size() && text[i] == '\n') {
          ++line;
          column = 0;
        }
      } else if (text.substr(i, closing.size()) == closing) {
        size_t length = closing.size();
        // Up to two quotes before the closing ones belong to a multi-line string.
        while (closing.size() == 3 && length < 5 && i + length < text.size() && text[i + length] == c) ++length;
        i += length - 1;
        column += static_cast<uint32_t>(length - 1);
        closing = {};
      }
    } else if (c == '#') {
      comment = true;
    } else if (c == '"' || c == '\'') {
      const bool multi = text.substr(i, 3) == (c == '"' ? "\"\"\"" : "'''");
      closing = text.substr(i, multi ? 3 : 1);
      i += closing.size() - 1;
      column += static_cast<uint32_t>(closing.size() - 1);
    } else if (c == '[' || c == '{') {
      ++brackets;
      dots = 0;
    } else if (c == ']' || c == '}') {
      brackets = std::max(0, brackets - 1);
      dots = 0;
    } else if (c == '=' || c == ',') {
      dots = 0;
    } else if (c == '.') {
      ++dots;
    }
    if (brackets > kMaxBrackets || dots > kMaxDots) {
      return TooDeep{line, column,
                     fmt::format("expected at most {} nested {}", brackets > kMaxBrackets ? kMaxBrackets : kMaxDots,
                                 brackets > kMaxBrackets ? "brackets" : "parts of a dotted key")};
    }
  }
  return std::nullopt;
}

}  // namespace lathe
