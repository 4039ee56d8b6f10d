// What a row of the key table means for one value: its text, its checks, and hints for typing errors.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <type_traits>

#include "base/did_you_mean.h"
#include "base/format_bytes.h"
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

std::string quote_toml(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out + '"';
}

std::string number_text(double value) {
  std::string text = fmt::format("{}", value);
  if (std::isfinite(value) && text.find_first_of(".e") == text.npos) text += ".0";
  return text;
}

std::string size_text(ByteSize size) {
  size_t unit = 0;
  int64_t count = size.bytes;
  while (count != 0 && count % 1024 == 0 && unit + 1 < std::size(kByteUnits)) {
    count /= 1024;
    ++unit;
  }
  return size.bytes == 0 ? "0" : fmt::format("{}{}", count, kByteUnits[unit]);
}

std::optional<ByteSize> parse_size(std::string_view text) {
  double count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count, std::chars_format::fixed);
  if (error != std::errc() || !(count >= 0)) return std::nullopt;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  double factor = 0;
  if (unit.empty()) factor = 1;
  for (size_t i = 0; i < std::size(kByteUnits); ++i) {
    const double binary = std::ldexp(1.0, static_cast<int>(10 * i));
    if (unit == kByteUnits[i] || (i > 0 && unit.size() == 1 && unit[0] == kByteUnits[i][0])) factor = binary;
    if (i > 0 && unit.size() == 2 && unit[0] == kByteUnits[i][0] && unit[1] == 'B') {
      factor = std::pow(1000.0, static_cast<double>(i));
    }
  }
  const double bytes = count * factor;
  if (factor == 0 || bytes > 9007199254740992.0 || bytes != std::floor(bytes)) return std::nullopt;
  return ByteSize{static_cast<int64_t>(bytes)};
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
