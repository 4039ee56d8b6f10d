#include "recipe/toml_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "recipe/recipe_errors.h"
#include "recipe/toml_depth.h"

namespace lathe {
namespace {

// The first line with which the text makes toml++ assert. Found by bisection, because an assertion has no position:
// text that ends before that line does not assert, text that ends after it does.
uint32_t line_of_assertion(std::string_view text) {
  std::vector<size_t> ends;  // of the lines
  for (size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) ends.push_back(at + 1);
  const auto asserts = [&](size_t end) {
    try {
      static_cast<void>(toml::parse(text.substr(0, end)));
    } catch (const toml::parse_error&) {
    } catch (const TomlAssertion&) {
      return true;
    }
    return false;
  };
  const auto first = std::partition_point(ends.begin(), ends.end(), [&](size_t end) { return !asserts(end); });
  return static_cast<uint32_t>(first - ends.begin()) + 1;
}

}  // namespace

toml::table parse_toml(std::string_view text, size_t most_bytes) {
  if (text.size() > most_bytes)
    throw TomlError{1, 1, fmt::format("expected at most {} bytes, got {}", most_bytes, text.size())};
  if (const auto found = find_too_deep(text)) throw TomlError{found->line, found->column, found->message};
  try {
    return toml::parse(text);
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    throw TomlError{at.line, at.column, shown(error.description())};
  } catch (const TomlAssertion&) {
    throw TomlError{line_of_assertion(text), 1, "expected a key or a table header"};
  }
}

}  // namespace lathe
