// What a row of the key table means for one value: its text, its checks, and hints for typing errors.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "nn/families/model.h"
#include "recipe/recipe_keys.h"

namespace lathe {
namespace {

RecipeField field_of(const RecipeKey& key, const Recipe& recipe) {
  return key.field(const_cast<Recipe&>(recipe));  // only read through
}

bool in_range(const Allowed& allowed, double value) {
  return std::isfinite(value) && (allowed.above_min ? value > allowed.min : value >= allowed.min) &&
         (allowed.below_max ? value < allowed.max : value <= allowed.max);
}

// Bounds are short when they are whole: 1000000 and not 1e+06.
std::string bound_text(double value) {
  return value == std::floor(value) && std::abs(value) <= 9007199254740992.0
             ? std::to_string(static_cast<int64_t>(value))
             : fmt::format("{}", value);
}

std::string range_text(const Allowed& allowed) {
  std::string text;
  if (std::isfinite(allowed.min)) {
    text += fmt::format(" {} {}", allowed.above_min ? "above" : "from", bound_text(allowed.min));
  }
  if (std::isfinite(allowed.max)) {
    const char* word = allowed.below_max ? (text.empty() ? "below" : "to below") : (text.empty() ? "at most" : "to");
    text += fmt::format(" {} {}", word, bound_text(allowed.max));
  } else if (!text.empty() && !allowed.above_min) {
    text = fmt::format(" of at least {}", bound_text(allowed.min));
  }
  return text;
}

std::string items_text(const Allowed& allowed) {
  if (allowed.min_items == allowed.max_items) return fmt::format("{} ", allowed.min_items);
  return allowed.min_items > 0 ? fmt::format("{} to {} ", allowed.min_items, allowed.max_items)
                               : fmt::format("up to {} ", allowed.max_items);
}

template <class T, class F>
std::string list_text(const std::vector<T>& items, F&& item_text) {
  std::string text = "[";
  for (const T& item : items) text += (text.size() > 1 ? ", " : "") + item_text(item);
  return text + "]";
}

// A layer as a TOML inline table.
std::string layer_table_text(const LayerSpec& layer) {
  std::string text = "{ type = " + quote_toml(layer.type);
  for (const auto& [key, value] : layer.keys) {
    text += fmt::format(", {} = ", key);
    std::visit(
        [&](const auto& v) {
          using T = std::decay_t<decltype(v)>;
          if constexpr (std::is_same_v<T, std::string>)
            text += quote_toml(v);
          else if constexpr (std::is_same_v<T, double>)
            text += number_text(v);
          else
            text += fmt::format("{}", v);
        },
        value);
  }
  return text + " }";
}

std::string group_text(const GroupRecipe& g) {
  std::string text = "{match = " + (g.match.size() == 1 ? quote_toml(g.match[0]) : list_text(g.match, quote_toml));
  if (g.lr_scale != 1) text += ", lr_scale = " + number_text(g.lr_scale);
  if (g.weight_decay) text += ", weight_decay = " + number_text(*g.weight_decay);
  if (g.frozen) text += ", frozen = true";
  return text + "}";
}

bool is_good_group(const GroupRecipe& g) {
  return !g.match.empty() && std::none_of(g.match.begin(), g.match.end(), [](const auto& m) { return m.empty(); }) &&
         in_range({.min = 0, .max = 1e6, .above_min = true}, g.lr_scale) &&
         in_range({.min = 0, .max = 1e3}, g.weight_decay.value_or(0));
}

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

std::string type_name(const RecipeKey& key) {
  static constexpr const char* kNames[] = {"boolean", "integer",           "number",
                                           "string",  "list of integers",  "list of numbers",
                                           "size",    "integer or tables", "list of tables"};
  static_assert(std::size(kNames) == std::variant_size_v<RecipeField>);
  Recipe recipe;
  return kNames[key.field(recipe).index()];
}

std::string allowed_text(const RecipeKey& key) {
  const Allowed& allowed = key.allowed;
  Recipe recipe;
  return std::visit(
      [&](auto* p) -> std::string {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, bool>) {
          return "true or false";
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return "an integer" + range_text(allowed);
        } else if constexpr (std::is_same_v<T, double>) {
          return "a number" + range_text(allowed);
        } else if constexpr (std::is_same_v<T, Ints>) {
          return fmt::format("a list of {}integers{}", items_text(allowed), range_text(allowed));
        } else if constexpr (std::is_same_v<T, Doubles>) {
          return fmt::format("a list of {}numbers{}", items_text(allowed), range_text(allowed));
        } else if constexpr (std::is_same_v<T, LayersRecipe>) {
          return fmt::format("an integer{}, or a list of up to {} layers", range_text(allowed), allowed.max_items);
        } else if constexpr (std::is_same_v<T, ByteSize>) {
          return "a size like \"512MiB\": a number of B, KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000)";
        } else if constexpr (std::is_same_v<T, Groups>) {
          return "tables with match, lr_scale (above 0 to 1000000), weight_decay (from 0 to 1000), frozen";
        } else if (!allowed.choices.empty()) {
          std::string text = "one of ";
          for (std::string_view choice : allowed.choices) {
            text += (text.back() == ' ' ? "" : ", ") + quote_toml(choice);
          }
          if (key.path == "model.family") {
            for (const ModelFamily& f : model_families())
              if (is_own_family(f.name)) text += ", " + quote_toml(f.name);
          }
          return text;
        } else {
          return allowed.pattern.empty() ? "a string" : std::string(allowed.pattern);
        }
      },
      key.field(recipe));
}

std::string value_text(const RecipeKey& key, const Recipe& recipe) {
  return std::visit(
      [&](const auto* p) -> std::string {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(p)>>;
        if constexpr (std::is_same_v<T, bool>) {
          return *p ? "true" : "false";
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return std::to_string(*p);
        } else if constexpr (std::is_same_v<T, double>) {
          return number_text(*p);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return quote_toml(*p);
        } else if constexpr (std::is_same_v<T, Ints>) {
          return list_text(*p, [](int64_t item) { return std::to_string(item); });
        } else if constexpr (std::is_same_v<T, Doubles>) {
          return list_text(*p, number_text);
        } else if constexpr (std::is_same_v<T, LayersRecipe>) {
          return p->list.empty() ? std::to_string(p->count) : list_text(p->list, layer_table_text);
        } else if constexpr (std::is_same_v<T, Groups>) {
          return list_text(*p, group_text);
        } else {
          return quote_toml(size_text(*p));
        }
      },
      field_of(key, recipe));
}

std::optional<BadValue> check_value(const RecipeKey& key, const Recipe& recipe) {
  const Allowed& allowed = key.allowed;
  return std::visit(
      [&](const auto* p) -> std::optional<BadValue> {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(p)>>;
        const auto bad = [&] { return BadValue{value_text(key, recipe), std::nullopt}; };
        if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, double>) {
          if (!in_range(allowed, static_cast<double>(*p))) return bad();
        } else if constexpr (std::is_same_v<T, std::string>) {
          const auto& choices = allowed.choices;
          const bool own = key.path == "model.family" && is_own_family(*p);
          if (!choices.empty() && !own && std::find(choices.begin(), choices.end(), *p) == choices.end()) return bad();
          if (allowed.matches && !allowed.matches(*p)) return bad();
        } else if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Doubles>) {
          if (p->size() < allowed.min_items || p->size() > allowed.max_items) {
            return BadValue{fmt::format("{} item{}", p->size(), p->size() == 1 ? "" : "s"), std::nullopt};
          }
          for (size_t i = 0; i < p->size(); ++i) {
            if (in_range(allowed, static_cast<double>((*p)[i]))) continue;
            return BadValue{number_text(static_cast<double>((*p)[i])), i};
          }
        } else if constexpr (std::is_same_v<T, LayersRecipe>) {
          if (!in_range(allowed, static_cast<double>(p->count))) return bad();
          if (p->list.size() > allowed.max_items) return BadValue{fmt::format("{} layers", p->list.size()), {}};
          for (size_t i = 0; i < p->list.size(); ++i)
            if (!check_layer(p->list[i]).empty()) return BadValue{layer_table_text(p->list[i]), i};
        } else if constexpr (std::is_same_v<T, ByteSize>) {
          if (p->bytes < 0) return bad();
        } else if constexpr (std::is_same_v<T, Groups>) {
          for (size_t i = 0; i < p->size(); ++i)
            if (!is_good_group((*p)[i])) return BadValue{group_text((*p)[i]), i};
        }
        return std::nullopt;
      },
      field_of(key, recipe));
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
  for (const RecipeKey& key : recipe_keys()) {
    const std::string_view last = last_part(key.path);
    const bool same_section = key.path.substr(0, key.path.size() - last.size()) == section;
    consider(key.path, edit_distance(path, key.path), allowed_distance(last_part(path)));
    // One more for another section, so that a near name of the same section wins.
    consider(key.path, word_distance(last_part(path), last) + (same_section ? 0 : 1),
             allowed_distance(last_part(path)));
    for (size_t dot = key.path.find('.'); dot != key.path.npos; dot = key.path.find('.', dot + 1)) {
      consider(key.path.substr(0, dot), edit_distance(path, key.path.substr(0, dot)),
               allowed_distance(last_part(path)));
    }
  }
  return best;
}

}  // namespace lathe
