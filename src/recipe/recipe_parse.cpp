// TOML to Recipe; every error carries where the value was written.
#include <fmt/format.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <type_traits>

#include "base/did_you_mean.h"
#include "base/error.h"
#include "recipe/recipe.h"
#include "recipe/recipe_check.h"
#include "recipe/recipe_errors.h"
#include "recipe/recipe_keys.h"
#include "recipe/toml_file.h"
#include "recipe/toml_value.h"

namespace lathe {
namespace {

constexpr size_t kMaxTextBytes = 1 << 20;

// Reads in two phases: the members of sections, then the settings of what they choose. A file is judged by itself
// first; then what --set chooses decides.
class Reader {
 public:
  // `any_family`: model.family need not be known; then the settings of [model] are taken as they are.
  Reader(Recipe& recipe, std::string file, bool any_family)
      : recipe_(recipe), errors_(recipe.origins), any_family_(any_family) {
    recipe_.origins = {std::move(file), {}};
  }

  void read_text(std::string_view text);
  void read_set(const std::string& set);
  void settle();  // after all text and sets
  void finish() {
    for (const Unknown& u : unknown_)
      if (!is_of_foreign_row(u.path)) unknown_key(u.path, u.origin, errors_);
    check_recipe(recipe_, errors_);
    check_use(recipe_, useless_, errors_);
    if (errors_.count() == 0)
      for (const Stray& s : strays_) errors_.add(s.origin, s.path, s.message);
    errors_.finish();
  }

 private:
  struct Setting {  // A key that some row of a choice has.
    const KeyChoice* choice;
    std::string path;
    const toml::node* node;
    std::optional<std::string> raw;  // the value text of a --set
    bool whole = false;              // which is all of it
  };
  struct Unknown {  // A key that nothing here has.
    std::string path;
    RecipeOrigin origin;
    const toml::node* node;
  };
  struct Stray {  // A setting of another row than the chosen one.
    std::string path;
    RecipeOrigin origin;
    std::string message;
  };

  void walk(const toml::table& table, const std::string& prefix);
  void visit(const std::string& path, const toml::node& node, RecipeOrigin key_origin);
  void assign(const RecipeKey& key, const toml::node& node);
  void assign_settings(const std::vector<Setting>& settings);
  void check_stray(const Setting& setting);
  void take_foreign_settings();
  bool is_foreign_row(const KeyChoice& c) { return !c.foreign.empty() && !c.schema_of(c.name(recipe_)); }
  bool is_of_foreign_row(std::string_view path) {
    return std::ranges::any_of(key_choices(),
                               [&](const KeyChoice& c) { return path.starts_with(c.section()) && is_foreign_row(c); });
  }
  bool read_value(FieldPtr field, const Allowed& allowed, const std::string& path, const toml::node& node,
                  std::string_view hint);
  bool read_tables(const Allowed& allowed, const std::string& path, const toml::array& array, Tables& out);
  void read_table(const TableType& type, const std::string& path, const toml::table& table, ParamSet& out);
  // Whether the node is a value of the field; without an error.
  bool is_of(FieldPtr field, const Allowed& allowed, const toml::node& node);
  RecipeOrigin origin_of(const toml::source_region& source) const {
    return {source.begin.line, source.begin.column, raw_set_ != nullptr};
  }

  Recipe& recipe_;
  RecipeErrors errors_;
  const bool any_family_;
  const std::string* raw_set_ = nullptr;   // the value text while a --set is read
  const toml::node* raw_node_ = nullptr;   // whose text that is
  std::vector<std::string_view> useless_;  // keys without effect in the file by itself
  std::deque<toml::table> tables_;         // that settings point into
  std::vector<Setting> settings_, set_settings_;
  std::vector<Stray> strays_;
  std::vector<Unknown> unknown_;
};

void Reader::assign(const RecipeKey& key, const toml::node& node) {
  const RecipeOrigin origin = origin_of(node.source());
  std::string hint;
  if (key.is_setting() && !is_of(field_of(key, recipe_), key.allowed, node))
    for (const TableType& row : key.choice->rows()) {
      ParamSet other(row.schema());
      const Field* f = row.schema().find(key.field->name);
      if (f && is_of(other.at(*f), f->allowed, node))
        hint = fmt::format("; that is for {} = \"{}\"", key.choice->key, row.name);
    }
  const bool ok = read_value(field_of(key, recipe_), allowed_of(key), key.path, node, hint);
  recipe_.origins.keys[key.path] = origin;
  const bool foreign = any_family_ && key.choice && !key.field && is_foreign_row(*key.choice);
  if (ok && !foreign) check_key(key, origin, recipe_, errors_);
}

bool Reader::is_of(FieldPtr field, const Allowed& allowed, const toml::node& node) {
  const size_t before = errors_.count();
  const bool ok = read_value(field, allowed, "", node, "");
  errors_.drop_from(before);
  return ok;
}

bool Reader::read_value(FieldPtr field, const Allowed& allowed, const std::string& path, const toml::node& node,
                        std::string_view hint) {
  const auto mismatch = [&](const toml::node& culprit, const std::string& suffix = "") {
    errors_.add(origin_of(culprit.source()), path + suffix,
                fmt::format("expected {}, got {}{}", allowed_text(field, allowed), got(culprit), hint));
    return false;
  };
  return std::visit(
      [&](auto* p) {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, Tables>) {
          const auto* array = node.as_array();
          Tables items;
          if (!array) return mismatch(node);
          if (!read_tables(allowed, path, *array, items)) return false;
          *p = std::move(items);
          return true;
        } else if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Doubles>) {
          T items;
          typename T::value_type item{};
          if (const auto* array = node.as_array()) {
            for (size_t i = 0; i < array->size(); ++i) {
              if (!get_value((*array)[i], item)) return mismatch((*array)[i], fmt::format("[{}]", i));
              items.push_back(item);
            }
          } else if (get_value(node, item)) {
            items.push_back(item);  // a scalar is a list of one
          } else {
            return mismatch(node);
          }
          *p = std::move(items);
          return true;
        } else {
          if constexpr (std::is_same_v<T, std::string>) {
            // In --set a string needs no quotes, even when it reads like a number.
            if (&node == raw_node_ && !node.is_string()) {
              *p = *raw_set_;
              return true;
            }
          }
          if constexpr (std::is_same_v<T, int64_t> || std::is_same_v<T, ByteSize>) {
            const auto* word = node.as_string();
            if (word && !allowed.word.empty() && word->get() == allowed.word) {
              *p = T{allowed.word_value};
              return true;
            }
          }
          T value{};
          if (!get_value(node, value)) return mismatch(node);
          *p = std::move(value);
          return true;
        }
      },
      field);
}

// False when an item is wrong, which is reported already.
bool Reader::read_tables(const Allowed& allowed, const std::string& path, const toml::array& array, Tables& out) {
  const size_t before = errors_.count();
  const auto types = allowed.tables();
  const bool typed = !types[0].name.empty();
  for (size_t i = 0; i < array.size(); ++i) {
    const std::string at = fmt::format("{}[{}]", path, i);
    const RecipeOrigin origin = origin_of(array[i].source());
    const auto* table = array[i].as_table();
    if (!table) {
      const std::string what = typed ? fmt::format("like {{ type = \"{}\" }}", types[0].name)
                                     : fmt::format("with {}", fmt::join(types[0].schema().names(), ", "));
      errors_.add(origin, at, fmt::format("expected a table {}, got {}", what, got(array[i])));
      continue;
    }
    if (!path.empty()) recipe_.origins.keys[at] = origin;
    const TableType* type = &types[0];
    if (typed) {
      std::vector<std::string_view> names;
      for (const TableType& t : types) names.push_back(t.name);
      const toml::node* given = table->get("type");
      const auto* word = given ? given->as_string() : nullptr;
      type = word ? find_type(allowed, word->get()) : nullptr;
      if (!given) {
        errors_.add(origin, at, fmt::format("expected type = one of {}", fmt::join(names, ", ")));
      } else if (!type) {
        const auto near = word ? did_you_mean(word->get(), names) : std::nullopt;
        errors_.add(origin_of(given->source()), at,
                    fmt::format("unknown type, known: {}, got {}{}", fmt::join(names, ", "), got(*given),
                                near ? fmt::format("; did you mean \"{}\"?", *near) : ""));
      }
      if (!type) continue;
    }
    ParamSet item(type->schema());
    read_table(*type, at, *table, item);
    out.push_back(std::move(item));
  }
  return errors_.count() == before;
}

void Reader::read_table(const TableType& type, const std::string& path, const toml::table& table, ParamSet& out) {
  const Schema& schema = type.schema();
  for (const auto& [key, node] : table) {
    if (key.str() == "type" && !type.name.empty()) continue;
    const std::string at = path + "." + std::string(key.str());
    const Field* f = schema.find(key.str());
    if (!f) {
      const auto names = schema.names();
      const auto word = did_you_mean(key.str(), names);
      const std::string known =
          type.name.empty() ? "" : fmt::format(" of {}, known: {}", type.name, fmt::join(names, ", "));
      errors_.add(origin_of(key.source()), at,
                  fmt::format("unknown key{}{}", known, word ? fmt::format("; did you mean \"{}\"?", *word) : ""));
      continue;
    }
    if (!read_value(out.at(*f), f->allowed, at, node, "")) continue;
    if (const auto bad = check_value(out.at(*f), f->allowed)) {
      const FieldPtr field = out.at(*f);
      const auto* text = std::get_if<std::string*>(&field);
      const auto word = text ? did_you_mean(**text, f->allowed.choices) : std::nullopt;
      errors_.add(origin_of(node.source()), at,
                  fmt::format("expected {}, got {}{}", allowed_text(field, f->allowed), shown(bad->got),
                              word ? fmt::format("; did you mean \"{}\"?", *word) : ""));
    }
  }
  for (const Field& f : schema.fields)
    if (f.allowed.required && !table.contains(f.name))
      errors_.add(origin_of(table.source()), path,
                  type.name.empty() ? fmt::format("expected `{}`: {}", f.name, f.help)
                                    : fmt::format("{} needs {}: {}", type.name, f.name, f.help));
}

void Reader::assign_settings(const std::vector<Setting>& settings) {
  for (const Setting& s : settings) {
    if (is_foreign_row(*s.choice)) continue;
    raw_set_ = s.raw ? &*s.raw : nullptr;
    raw_node_ = s.whole ? s.node : nullptr;
    if (const RecipeKey* key = find_setting(*s.choice, s.choice->params(recipe_).schema(), s.path))
      assign(*key, *s.node);
    else
      check_stray(s);
  }
  raw_set_ = nullptr;
  raw_node_ = nullptr;
}

// A written-out recipe of an earlier version has the settings of all rows, with their defaults.
void Reader::check_stray(const Setting& s) {
  std::vector<std::string_view> of_kind, all;
  const RecipeKey* first = nullptr;
  for (const TableType& row : s.choice->rows()) {
    const RecipeKey* key = find_setting(*s.choice, row.schema(), s.path);
    if (!key) continue;
    if (!first) first = key;
    ParamSet other(row.schema());
    const FieldPtr field = other.at(*key->field);
    if (!is_of(field, key->allowed, *s.node) || check_value(field, key->allowed)) continue;
    of_kind.push_back(row.name);
    if (!s.raw && value_text(field, key->allowed) == default_text(*key)) return;
  }
  if (of_kind.empty()) {
    Recipe other;
    s.choice->params(other) = ParamSet(*first->schema);
    if (read_value(field_of(*first, other), first->allowed, s.path, *s.node, ""))
      check_key(*first, origin_of(s.node->source()), other, errors_);
    return;
  }
  strays_.push_back({s.path, origin_of(s.node->source()),
                     fmt::format("has no effect: it is for {} only; remove it", rows_text(*s.choice, of_kind))});
}

void Reader::take_foreign_settings() {
  for (const KeyChoice& choice : key_choices()) {
    if (!is_foreign_row(choice)) continue;
    std::vector<std::pair<std::string, std::string>> texts;
    const auto take = [&](const auto& written) {
      if (written.path.starts_with(choice.section()))
        texts.emplace_back(written.path.substr(choice.section().size()), toml_text(*written.node));
    };
    std::ranges::for_each(settings_, take);
    std::ranges::for_each(unknown_, take);
    std::ranges::sort(texts);
    choice.params(recipe_) = foreign_settings(texts);
  }
}

void Reader::settle() {
  // How long a run is, is one choice of two keys: --set of epochs takes the place of the file's steps.
  const auto is_set = [&](std::string_view key) {
    const auto found = recipe_.origins.keys.find(key);
    return found != recipe_.origins.keys.end() && found->second.set;
  };
  if (is_set("train.epochs") && !is_set("train.steps")) {
    recipe_.train.steps = 0;
    recipe_.origins.keys.erase("train.steps");
  }
  const std::vector<Stray> in_file = std::move(strays_);
  strays_.clear();
  if (settle_choices(recipe_)) {
    // What the file has is read again, for what is chosen now. It may have settings that only now have an effect, but
    // none that never had one.
    for (const Setting& s : settings_) recipe_.origins.keys.erase(s.path);
    // The same name may be of another kind there: `layers` is a number, or a list.
    std::erase_if(settings_, [&](const Setting& s) {
      ParamSet scratch = s.choice->params(recipe_);
      const RecipeKey* key = find_setting(*s.choice, scratch.schema(), s.path);
      return key && !is_of(scratch.at(*key->field), key->allowed, *s.node);
    });
    const size_t before = errors_.count();
    assign_settings(settings_);
    if (before > 0) errors_.drop_from(before);
    std::erase_if(strays_, [&](const Stray& s) {
      return std::ranges::none_of(in_file, [&](const Stray& was) { return was.path == s.path; });
    });
  } else {
    strays_ = in_file;
  }
  assign_settings(set_settings_);
}

void Reader::visit(const std::string& path, const toml::node& node, RecipeOrigin key_origin) {
  if (const RecipeKey* key = find_section_key(path)) {
    assign(*key, node);
  } else if (const KeyChoice* choice = find_choice(path)) {
    if (raw_set_)
      set_settings_.push_back({choice, path, &node, *raw_set_, &node == raw_node_});
    else
      settings_.push_back({choice, path, &node, std::nullopt, false});
  } else if (path == "device" && node.is_value()) {
    assign(*find_section_key("device.name"), node);  // the short form
  } else if (!is_recipe_section(path)) {
    unknown_.push_back({path, key_origin, &node});
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
    tables_.push_back(parse_toml(text, kMaxTextBytes));
    walk(tables_.back(), "");
  } catch (const TomlError& error) {
    errors_.add_syntax({error.line, error.column}, error.message);
  }
  settle_choices(recipe_);
  assign_settings(settings_);
  if (any_family_) take_foreign_settings();
  // A written-out recipe has every key: one that has no effect must have its default.
  for (const RecipeKey* key : recipe_keys(recipe_))
    if (recipe_.origins.keys.count(key->path) && !is_used(*key, recipe_) &&
        value_text(*key, recipe_) != default_text(*key))
      useless_.push_back(key->path);
}

void Reader::read_set(const std::string& set) {
  const size_t equal = set.find('=');
  if (equal == set.npos || equal == 0) {
    errors_.add({0, 0, true}, shown(set), "expected key=value");
    return;
  }
  const std::string path = set.substr(0, equal), raw = set.substr(equal + 1);
  raw_set_ = &raw;
  const auto is_list_key = [&](const RecipeKey* key) {
    return key->path == path && type_name(*key).starts_with("list");
  };
  const bool is_list = std::ranges::any_of(all_recipe_keys(), is_list_key);
  toml::table& table = tables_.emplace_back();
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
  raw_node_ = table.get("v");
  visit(path, *raw_node_, {0, 0, true});
  raw_set_ = nullptr;
  raw_node_ = nullptr;
}

std::string stem(const std::string& file) {
  std::string name = file.substr(file.rfind('/') + 1);
  if (const size_t dot = name.rfind('.'); dot != name.npos && dot > 0) name.resize(dot);
  return name;
}

Recipe parse(std::string_view text, const std::string& file, const Sets& sets, bool any_family) {
  Recipe recipe;
  Reader reader(recipe, file, any_family);
  reader.read_text(text);
  for (const std::string& set : sets) reader.read_set(set);
  reader.settle();
  fill_defaults(recipe, [&](std::string_view key) { return recipe.origins.keys.count(key) > 0; });
  reader.finish();
  if (recipe.name.empty()) {
    recipe.name = stem(file);
    // A file name may have characters that a run name may not.
    if (check_value(*find_section_key("name"), recipe)) recipe.name = "recipe";
  }
  return recipe;
}

}  // namespace

Recipe parse_recipe(std::string_view text, const std::string& file, const Sets& sets) {
  return parse(text, file, sets, false);
}

Recipe parse_foreign_recipe(std::string_view text, const std::string& file) { return parse(text, file, {}, true); }

}  // namespace lathe
