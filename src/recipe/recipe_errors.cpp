#include "recipe/recipe_errors.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "base/error.h"

namespace lathe {
namespace {

constexpr size_t kMaxErrors = 20;

}  // namespace

std::string shown(std::string_view text) {
  constexpr size_t kMax = 60;
  std::string out;
  for (char c : text.substr(0, kMax)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text.size() > kMax ? out + "..." : out;
}

bool RecipeErrors::full() const { return problems_.size() >= kMaxErrors; }

void RecipeErrors::add(RecipeOrigin origin, std::string_view key, const std::string& message) {
  if (full()) {
    ++suppressed_;
    return;
  }
  std::string where;
  if (origin.set) {
    where = "--set ";
  } else if (origin.line > 0) {
    where = fmt::format("{}:{}:{}: ", origins_.file, origin.line, origin.column);
  }
  problems_.push_back({origin, fmt::format("{}{}: {}", where, shown(key), message)});
}

void RecipeErrors::add_syntax(RecipeOrigin origin, std::string_view message) {
  problems_.push_back({origin, fmt::format("{}:{}:{}: {}", origins_.file, origin.line, origin.column, message)});
}

void RecipeErrors::report(std::span<const std::string_view> keys, const std::string& message) {
  for (std::string_view key : keys) {
    const auto found = origins_.keys.find(key);
    if (found != origins_.keys.end()) return add(found->second, keys[0], message);
  }
  add({}, keys[0], message);
}

void RecipeErrors::finish() {
  if (problems_.empty()) return;
  std::stable_sort(problems_.begin(), problems_.end(), [](const Problem& a, const Problem& b) {
    return std::tuple(a.origin.set, a.origin.line, a.origin.column) <
           std::tuple(b.origin.set, b.origin.line, b.origin.column);
  });
  std::string message;
  for (const Problem& p : problems_) message += (message.empty() ? "" : "\n") + p.text;
  if (suppressed_ > 0) message += fmt::format("\n... and {} more errors", suppressed_);
  throw UserError(message, Exit::bad_recipe);
}

void throw_recipe_error(const Recipe& recipe, std::initializer_list<std::string_view> keys,
                        const std::string& message) {
  RecipeErrors errors(recipe.origins);
  errors.fail(keys, message);
  errors.finish();
  throw InternalError("no recipe error was thrown");
}

}  // namespace lathe
