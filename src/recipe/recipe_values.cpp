// What a key means for one value: its text, its checks, and hints for typing errors.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "recipe/recipe_keys.h"

namespace lathe {
namespace {

// Edit distance with transpositions (optimal string alignment), ignoring case.
int edit_distance(std::string_view a, std::string_view b) {
  constexpr size_t kMax = 80;
  a = a.substr(0, kMax);
  b = b.substr(0, kMax);
  int rows[3][kMax + 1];
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  for (size_t j = 0; j <= b.size(); ++j) rows[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    int* now = rows[i % 3];
    const int* last = rows[(i - 1) % 3];
    now[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1])) {
        now[j] = std::min(now[j], rows[(i - 2) % 3][j - 2] + 1);
      }
    }
  }
  return rows[a.size() % 3][b.size()];
}

int allowed_distance(std::string_view word) { return std::max(1, static_cast<int>(word.size()) / 3); }

// 0 is the same word; a beginning of the word counts as one error.
int word_distance(std::string_view wrong, std::string_view word) {
  const size_t common = std::min(wrong.size(), word.size());
  if (common >= 3 && wrong.size() != word.size() && wrong.substr(0, common) == word.substr(0, common)) return 1;
  return edit_distance(wrong, word);
}

std::string_view last_part(std::string_view path) { return path.substr(path.rfind('.') + 1); }

}  // namespace

Allowed allowed_of(const RecipeKey& key) {
  if (!key.choice || key.setting) return key.allowed;
  Allowed names;
  for (const TableType& row : key.choice->rows()) names.choices.push_back(row.name);
  return names;
}

namespace {

// f(field), of the default.
template <class F>
std::string of_default(const RecipeKey& key, F&& f) {
  Recipe recipe;
  if (!key.setting) return f(key.member(recipe));
  const ParamSet defaults(*key.row);
  return f(defaults.at(*key.setting));
}

}  // namespace

std::string type_name(const RecipeKey& key) {
  return of_default(key, [](FieldPtr p) { return type_name(p); });
}

std::string allowed_text(const RecipeKey& key) {
  return of_default(key, [&](FieldPtr p) { return allowed_text(p, allowed_of(key)); });
}

std::string default_text(const RecipeKey& key) {
  return of_default(key, [&](FieldPtr p) { return value_text(p, key.allowed); });
}

std::string value_text(const RecipeKey& key, const Recipe& recipe) {
  return value_text(field_of(key, recipe), key.allowed);
}

std::optional<BadValue> check_value(const RecipeKey& key, const Recipe& recipe) {
  return check_value(field_of(key, recipe), allowed_of(key));
}

std::optional<std::string_view> did_you_mean(std::string_view wrong, std::span<const std::string_view> words) {
  std::optional<std::string_view> best;
  int best_distance = allowed_distance(wrong) + 1;
  for (std::string_view word : words) {
    const int distance = word_distance(wrong, word);
    if (distance < best_distance) best = word, best_distance = distance;
  }
  return best;
}

std::optional<std::string_view> did_you_mean_key(std::string_view path) {
  std::optional<std::string_view> best;
  int best_distance = std::numeric_limits<int>::max();
  const auto consider = [&](std::string_view word, int distance, int limit) {
    if (distance <= limit && distance < best_distance) best = word, best_distance = distance;
  };
  const std::string_view section = path.substr(0, path.size() - last_part(path).size());
  for (const RecipeKey* known : all_recipe_keys()) {
    const RecipeKey& key = *known;
    const std::string_view last = last_part(key.path);
    const std::string_view whole = key.path;
    const bool same_section = whole.substr(0, whole.size() - last.size()) == section;
    consider(key.path, edit_distance(path, key.path), allowed_distance(last_part(path)));
    // One more for another section, so that a near name of the same section wins.
    consider(key.path, word_distance(last_part(path), last) + (same_section ? 0 : 1),
             allowed_distance(last_part(path)));
    for (size_t dot = key.path.find('.'); dot != key.path.npos; dot = key.path.find('.', dot + 1)) {
      consider(whole.substr(0, dot), edit_distance(path, whole.substr(0, dot)), allowed_distance(last_part(path)));
    }
  }
  return best;
}

}  // namespace lathe
