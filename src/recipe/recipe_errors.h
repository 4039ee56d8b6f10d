// Errors of a recipe, collected and thrown together: `file:line:col: key: expected X, got Y; hint` or `--set key: ...`.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"
#include "recipe/recipe_keys.h"

namespace lathe {

// Text from outside inside a message: one line, printable, not too long.
std::string shown(std::string_view text);

class RecipeErrors final : public RuleReport {
 public:
  explicit RecipeErrors(const RecipeOrigins& origins) : origins_(origins) {}  // read when an error is added

  void add(RecipeOrigin origin, std::string_view key, const std::string& message);
  void add_syntax(RecipeOrigin origin, std::string_view message);  // no key: the text itself is wrong
  // Named by the first of the keys, located at the first of them that was written somewhere.
  void report(std::span<const std::string_view> keys, const std::string& message) override;

  void drop_from(size_t count) { problems_.resize(count); }
  size_t count() const { return problems_.size(); }
  bool full() const;
  void finish();  // UserError with Exit::bad_recipe when there was one

 private:
  struct Problem {
    RecipeOrigin origin;
    std::string text;
  };
  const RecipeOrigins& origins_;
  std::vector<Problem> problems_;
  size_t suppressed_ = 0;
};

// One error found after parsing, when the data or the device is known.
[[noreturn]] void throw_recipe_error(const Recipe&, std::initializer_list<std::string_view> keys,
                                     const std::string& message);

}  // namespace lathe
