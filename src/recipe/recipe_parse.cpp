// TOML to Recipe. The only file that sees toml++; every error carries where the value was written.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <type_traits>

#include "base/did_you_mean.h"
#include "base/error.h"
#include "recipe/recipe.h"
#include "recipe/recipe_check.h"
#include "recipe/recipe_errors.h"
#include "recipe/recipe_keys.h"
#include "recipe/toml_file.h"

namespace lathe {
namespace {

constexpr size_t kMaxTextBytes = 1 << 20;

class Reader {
 public:
  Reader(Recipe& recipe, std::string file) : recipe_(recipe), errors_(recipe.origins) {
    recipe_.origins = {std::move(file), {}};
  }

  void read_text(std::string_view text);
  void read_set(const std::string& set);
  void finish() {
    check_recipe(recipe_, errors_);
    check_use(recipe_, useless_, errors_);
    errors_.finish();
  }

 private:
  void walk(const toml::table& table, const std::string& prefix);
  void visit(const std::string& path, const toml::node& node, RecipeOrigin key_origin);
  void assign(const RecipeKey& key, const toml::node& node);
  bool read_layers(const std::string& path, const toml::array& array, std::vector<LayerSpec>& out);
  bool read_groups(const toml::node& node, Groups& out);
  RecipeOrigin origin_of(const toml::source_region& source) const {
    return {source.begin.line, source.begin.column, raw_set_ != nullptr};
  }

  Recipe& recipe_;
  RecipeErrors errors_;
  const std::string* raw_set_ = nullptr;   // the value text while a --set is read
  std::vector<std::string_view> useless_;  // keys without effect in the file by itself
};

std::string got(const toml::node& node) {
  if (const auto* value = node.as_string()) return '"' + shown(value->get()) + '"';
  if (const auto* value = node.as_integer()) return std::to_string(value->get());
  if (const auto* value = node.as_floating_point()) return number_text(value->get());
  if (const auto* value = node.as_boolean()) return value->get() ? "true" : "false";
  if (const auto* value = node.as_array()) {
    return fmt::format("a list of {} item{}", value->size(), value->size() == 1 ? "" : "s");
  }
  return node.is_table() ? "a table" : "a date or time";
}

// True when the node has the type of `out`; integers are numbers too.
bool get_value(const toml::node& node, int64_t& out) {
  const auto* value = node.as_integer();
  if (value) out = value->get();
  return value != nullptr;
}
bool get_value(const toml::node& node, double& out) {
  if (const auto* value = node.as_integer()) {
    out = static_cast<double>(value->get());
    return true;
  }
  const auto* value = node.as_floating_point();
  if (value) out = value->get();
  return value != nullptr;
}
bool get_value(const toml::node& node, bool& out) {
  const auto* value = node.as_boolean();
  if (value) out = value->get();
  return value != nullptr;
}
bool get_value(const toml::node& node, std::string& out) {
  const auto* value = node.as_string();
  if (value) out = value->get();
  return value != nullptr;
}
bool get_value(const toml::node& node, ByteSize& out) {
  if (const auto* value = node.as_integer()) {
    out.bytes = value->get();
    return true;
  }
  const auto* value = node.as_string();
  const auto size = value ? parse_size(value->get()) : std::nullopt;
  if (size) out = *size;
  return size.has_value();
}

bool get_value(const toml::node& node, std::vector<std::string>& out) {
  out.assign(1, "");
  if (get_value(node, out[0])) return true;
  const auto* array = node.as_array();
  out.assign(array ? array->size() : 0, "");
  for (size_t i = 0; i < out.size(); ++i)
    if (!get_value((*array)[i], out[i])) return false;
  return array != nullptr;
}

bool Reader::read_groups(const toml::node& node, Groups& out) {
  static constexpr std::string_view kNames[] = {"match", "lr_scale", "weight_decay", "frozen"};
  const size_t before = errors_.count();
  const auto expected = [&](const toml::node& at, const std::string& path, std::string_view what) {
    errors_.add(origin_of(at.source()), path, fmt::format("expected {}, got {}", what, got(at)));
  };
  const auto* array = node.as_array();
  if (!array) {
    expected(node, "optimizer.groups", "a list of tables, like [[optimizer.groups]]");
    return false;
  }
  out.clear();
  for (size_t i = 0; i < array->size(); ++i) {
    const std::string path = fmt::format("optimizer.groups[{}]", i);
    const auto* table = (*array)[i].as_table();
    if (!table) {
      expected((*array)[i], path, "a table with match, lr_scale, weight_decay, frozen");
      continue;
    }
    GroupRecipe& g = out.emplace_back();
    for (const auto& [key, value] : *table) {
      const std::string at = path + "." + std::string(key.str());
      if (key.str() == "match") {
        if (!get_value(value, g.match)) expected(value, at, "a pattern of parameter names, or a list of them");
      } else if (key.str() == "lr_scale") {
        if (!get_value(value, g.lr_scale)) expected(value, at, "a number above 0 to 1000000");
      } else if (key.str() == "weight_decay") {
        if (!get_value(value, g.weight_decay.emplace())) expected(value, at, "a number from 0 to 1000");
      } else if (key.str() == "frozen") {
        if (!get_value(value, g.frozen)) expected(value, at, "true or false");
      } else {
        const auto word = did_you_mean(key.str(), kNames);
        errors_.add(origin_of(key.source()), at,
                    word ? fmt::format("unknown key; did you mean \"{}\"?", *word) : std::string("unknown key"));
      }
    }
    if (!table->contains("match"))
      errors_.add(origin_of(table->source()), path, "expected `match`: which parameters the group is for");
  }
  return errors_.count() == before;
}

void Reader::assign(const RecipeKey& key, const toml::node& node) {
  const RecipeOrigin origin = origin_of(node.source());
  const auto mismatch = [&](const toml::node& culprit, const std::string& suffix) {
    errors_.add(origin_of(culprit.source()), std::string(key.path) + suffix,
                fmt::format("expected {}, got {}", allowed_text(key), got(culprit)));
  };
  const bool ok = std::visit(
      [&](auto* p) {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, Groups>) {
          return read_groups(node, *p);
        } else if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Doubles>) {
          T items;
          typename T::value_type item{};
          if (const auto* array = node.as_array()) {
            for (size_t i = 0; i < array->size(); ++i) {
              if (!get_value((*array)[i], item)) {
                mismatch((*array)[i], fmt::format("[{}]", i));
                return false;
              }
              items.push_back(item);
            }
          } else if (get_value(node, item)) {
            items.push_back(item);  // a scalar is a list of one
          } else {
            mismatch(node, "");
            return false;
          }
          *p = std::move(items);
          return true;
        } else if constexpr (std::is_same_v<T, LayersRecipe>) {
          LayersRecipe layers;
          if (const auto* array = node.as_array()) {
            if (!read_layers(std::string(key.path), *array, layers.list)) return false;
          } else if (!get_value(node, layers.count)) {
            mismatch(node, "");
            return false;
          }
          *p = std::move(layers);
          return true;
        } else {
          if constexpr (std::is_same_v<T, std::string>) {
            // In --set a string needs no quotes, even when it reads like a number.
            if (raw_set_ && !node.is_string()) {
              *p = *raw_set_;
              return true;
            }
          }
          if (get_value(node, *p)) return true;
          mismatch(node, "");
          return false;
        }
      },
      key.field(recipe_));
  recipe_.origins.keys[std::string(key.path)] = origin;
  if (ok) check_key(key, origin, recipe_, errors_);
}

// False when a layer is wrong, which is reported already.
bool Reader::read_layers(const std::string& path, const toml::array& array, std::vector<LayerSpec>& out) {
  const size_t before = errors_.count();
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    const RecipeOrigin origin = origin_of(array[i].source());
    const auto* table = array[i].as_table();
    if (!table) {
      errors_.add(origin, at,
                  fmt::format("expected a table like {{ type = \"dense\", out = 10 }}, got {}", got(array[i])));
      continue;
    }
    LayerSpec layer;
    std::map<std::string, RecipeOrigin> origins;
    RecipeOrigin of_type = origin;
    for (const auto& [key, node] : *table) {
      const std::string name(key.str());
      bool flag = false;
      int64_t integer = 0;
      double number = 0;
      std::string text;
      LayerValue value;
      if (get_value(node, flag))
        value = flag;
      else if (get_value(node, integer))
        value = integer;
      else if (get_value(node, number))
        value = number;
      else if (get_value(node, text))
        value = text;
      else {
        errors_.add(origin_of(node.source()), at + "." + name,
                    fmt::format("expected a single value, got {}", got(node)));
        continue;
      }
      origins[name] = origin_of(key.source());
      if (name == "type") {
        of_type = origin_of(node.source());
        if (const auto* word = std::get_if<std::string>(&value))
          layer.type = *word;
        else
          layer.type = got(node);
      } else {
        layer.keys.emplace_back(name, std::move(value));
      }
    }
    recipe_.origins.keys[at] = origin;
    for (const LayerProblem& p : check_layer(layer)) {
      std::string hint;
      if (const auto word = did_you_mean(p.wrong, p.words); !p.wrong.empty() && word)
        hint = fmt::format("; did you mean \"{}\"?", *word);
      const std::string got_type = p.key.empty() && !p.words.empty() && !layer.type.empty()
                                       ? fmt::format(", got \"{}\"", shown(layer.type))
                                       : "";
      const RecipeOrigin where = p.key.empty() ? of_type : origins[p.key];
      errors_.add(where, p.key.empty() ? at : at + "." + p.key, p.message + got_type + hint);
    }
    out.push_back(normalized(layer));
  }
  return errors_.count() == before;
}

void Reader::visit(const std::string& path, const toml::node& node, RecipeOrigin key_origin) {
  if (const RecipeKey* key = find_recipe_key(path)) {
    assign(*key, node);
  } else if (path == "device" && node.is_value()) {
    assign(*find_recipe_key("device.name"), node);  // the short form
  } else if (!is_recipe_section(path)) {
    unknown_key(path, key_origin, errors_);
  } else if (const auto* table = node.as_table()) {
    walk(*table, path + ".");
  } else {
    errors_.add(origin_of(node.source()), path, fmt::format("expected a table, got {}", got(node)));
  }
}

void Reader::walk(const toml::table& table, const std::string& prefix) {
  for (const auto& [key, node] : table) visit(prefix + std::string(key.str()), node, origin_of(key.source()));
}

void Reader::read_text(std::string_view text) {
  try {
    walk(parse_toml(text, kMaxTextBytes), "");
  } catch (const TomlError& error) {
    errors_.add_syntax({error.line, error.column}, error.message);
  }
  // A written-out recipe has every key: one that has no effect must have its default.
  const Recipe defaults;
  for (const RecipeKey& key : recipe_keys())
    if (recipe_.origins.keys.count(key.path) && !is_used(key, recipe_) &&
        value_text(key, recipe_) != value_text(key, defaults))
      useless_.push_back(key.path);
}

void Reader::read_set(const std::string& set) {
  const size_t equal = set.find('=');
  if (equal == set.npos || equal == 0) {
    errors_.add({0, 0, true}, shown(set), "expected key=value");
    return;
  }
  const std::string path = set.substr(0, equal), raw = set.substr(equal + 1);
  raw_set_ = &raw;
  const RecipeKey* key = find_recipe_key(path);
  const bool is_list = key && type_name(*key).substr(0, 4) == "list";
  toml::table table;
  // The value as TOML; a list may come without its brackets; all else is a string.
  const auto parse = [&](const std::string& text) {
    try {
      table = parse_toml(text, kMaxTextBytes);
      return table.size() == 1;  // a line break in the value could smuggle in more
    } catch (const TomlError&) {
      return false;
    }
  };
  if (!parse("v = " + raw) && !(is_list && parse("v = [" + raw + "]"))) {
    table = toml::table{};
    table.insert("v", raw.substr(0, kMaxTextBytes));
  }
  visit(path, *table.get("v"), {0, 0, true});
  raw_set_ = nullptr;
}

std::string stem(const std::string& file) {
  std::string name = file.substr(file.rfind('/') + 1);
  if (const size_t dot = name.rfind('.'); dot != name.npos && dot > 0) name.resize(dot);
  return name;
}

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& file, const Sets& sets) {
  Recipe recipe;
  Reader reader(recipe, file);
  reader.read_text(text);
  for (const std::string& set : sets) reader.read_set(set);
  fill_defaults(recipe, [&](std::string_view key) { return recipe.origins.keys.count(key) > 0; });
  reader.finish();
  if (recipe.name.empty()) {
    recipe.name = stem(file);
    // A file name may have characters that a run name may not.
    if (check_value(*find_recipe_key("name"), recipe)) recipe.name = "recipe";
  }
  return recipe;
}

}  // namespace lathe
