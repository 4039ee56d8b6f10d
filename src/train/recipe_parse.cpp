// TOML to Recipe. The only file that sees toml++; every error carries where the value was written.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <type_traits>

#include "base/error.h"
#include "train/recipe.h"
#include "train/recipe_keys.h"
#include "train/recipe_toml.h"

namespace lathe {
namespace {

constexpr size_t kMaxBytes = 1 << 20;
constexpr size_t kMaxErrors = 20;
constexpr int kMaxBrackets = 16;
constexpr int kMaxDots = 8;

// Text from outside inside a message: one line, printable, not too long.
std::string shown(std::string_view text) {
  constexpr size_t kMax = 60;
  std::string out;
  for (char c : text.substr(0, kMax)) {
    const auto byte = static_cast<unsigned char>(c);
    out += byte < 0x20 || byte == 0x7f ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return text.size() > kMax ? out + "..." : out;
}

// Where a value was written: a position in the file, or a --set argument.
struct Origin {
  uint32_t line = 0, column = 0;  // line 0: --set, or set in code
  bool set = false;
};

struct Problem {
  Origin origin;
  std::string text;
};

class Reader final : public RuleReport {
 public:
  Reader(Recipe& recipe, std::string file) : recipe_(recipe), file_(std::move(file)) {}

  void read_text(std::string_view text);
  void read_set(const std::string& set);
  void check_all();  // values and rules of the recipe as it stands
  void finish();     // throws when there were problems

  void fail(std::initializer_list<std::string_view> keys, const std::string& message) override;

 private:
  void walk(const toml::table& table, const std::string& prefix);
  void visit(const std::string& path, const toml::node& node, Origin key_origin);
  void assign(const RecipeKey& key, const toml::node& node);
  void check(const RecipeKey& key, Origin origin);
  void unknown(const std::string& path, Origin origin);
  void problem(Origin origin, std::string_view key, const std::string& message);
  void syntax_problem(Origin origin, std::string_view message);
  bool check_nesting(std::string_view text);
  uint32_t line_of_assertion(std::string_view text) const;
  Origin origin_of(const toml::source_region& source) const {
    return {source.begin.line, source.begin.column, raw_set_ != nullptr};
  }

  Recipe& recipe_;
  std::string file_;
  const std::string* raw_set_ = nullptr;  // the value text while a --set is read
  std::map<std::string_view, Origin> origins_;
  std::vector<Problem> problems_;
  size_t suppressed_ = 0;
};

void Reader::problem(Origin origin, std::string_view key, const std::string& message) {
  if (problems_.size() >= kMaxErrors) {
    ++suppressed_;
    return;
  }
  std::string where;
  if (origin.set) {
    where = "--set ";
  } else if (origin.line > 0) {
    where = fmt::format("{}:{}:{}: ", file_, origin.line, origin.column);
  }
  problems_.push_back({origin, fmt::format("{}{}: {}", where, shown(key), message)});
}

void Reader::syntax_problem(Origin origin, std::string_view message) {
  problems_.push_back({origin, fmt::format("{}:{}:{}: {}", file_, origin.line, origin.column, message)});
}

void Reader::finish() {
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

// Deep nesting would exhaust the stack of a recursive parser or destructor; recipes need three levels. Counts open
// brackets, and dots since the last separator (the depth of a dotted key), outside of strings and comments.
bool Reader::check_nesting(std::string_view text) {
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
      syntax_problem({line, column},
                     fmt::format("expected at most {} nested {}", brackets > kMaxBrackets ? kMaxBrackets : kMaxDots,
                                 brackets > kMaxBrackets ? "brackets" : "parts of a dotted key"));
      return false;
    }
  }
  return true;
}

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

void Reader::assign(const RecipeKey& key, const toml::node& node) {
  const Origin origin = origin_of(node.source());
  const auto mismatch = [&](const toml::node& culprit, const std::string& suffix) {
    problem(origin_of(culprit.source()), std::string(key.path) + suffix,
            fmt::format("expected {}, got {}", allowed_text(key), got(culprit)));
  };
  const bool ok = std::visit(
      [&](auto* p) {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, Ints> || std::is_same_v<T, Doubles>) {
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
  origins_[key.path] = origin;
  if (ok) check(key, origin);
}

void Reader::check(const RecipeKey& key, Origin origin) {
  const auto bad = check_value(key, recipe_);
  if (!bad) return;
  std::string path(key.path);
  if (bad->item) path += fmt::format("[{}]", *bad->item);
  std::string hint;
  const RecipeField field = key.field(recipe_);
  if (const auto* text = std::get_if<std::string*>(&field)) {
    static constexpr std::string_view kDevices[] = {"cpu", "ref", "opencl"};
    const auto words = key.path == "device.name" ? std::span<const std::string_view>(kDevices) : key.allowed.choices;
    if (const auto word = did_you_mean(**text, words)) hint = fmt::format("; did you mean \"{}\"?", *word);
  }
  problem(origin, path, fmt::format("expected {}, got {}{}", allowed_text(key), shown(bad->got), hint));
}

void Reader::unknown(const std::string& path, Origin origin) {
  std::string hint;
  if (problems_.size() < kMaxErrors) {
    if (const auto word = did_you_mean_key(path)) hint = fmt::format("; did you mean \"{}\"?", *word);
  }
  problem(origin, path, "unknown key" + hint);
}

void Reader::visit(const std::string& path, const toml::node& node, Origin key_origin) {
  if (const RecipeKey* key = find_recipe_key(path)) {
    assign(*key, node);
  } else if (path == "device" && node.is_value()) {
    assign(*find_recipe_key("device.name"), node);  // the short form
  } else if (!is_recipe_section(path)) {
    unknown(path, key_origin);
  } else if (const auto* table = node.as_table()) {
    walk(*table, path + ".");
  } else {
    problem(origin_of(node.source()), path, fmt::format("expected a table, got {}", got(node)));
  }
}

void Reader::walk(const toml::table& table, const std::string& prefix) {
  for (const auto& [key, node] : table) visit(prefix + std::string(key.str()), node, origin_of(key.source()));
}

// The first line with which the text makes toml++ assert. Found by bisection, because an assertion has no position:
// text that ends before that line does not assert, text that ends after it does.
uint32_t Reader::line_of_assertion(std::string_view text) const {
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

void Reader::read_text(std::string_view text) {
  if (text.size() > kMaxBytes) {
    syntax_problem({1, 1}, fmt::format("expected a recipe of at most {} bytes, got {}", kMaxBytes, text.size()));
    return;
  }
  if (!check_nesting(text)) return;
  try {
    walk(toml::parse(text, std::string_view(file_)), "");
  } catch (const toml::parse_error& error) {
    const auto& at = error.source().begin;
    syntax_problem({at.line, at.column}, shown(error.description()));
  } catch (const TomlAssertion&) {
    syntax_problem({line_of_assertion(text), 1}, "expected a key or a table header");
  }
}

void Reader::read_set(const std::string& set) {
  const size_t equal = set.find('=');
  if (equal == set.npos || equal == 0) {
    problem({0, 0, true}, shown(set), "expected key=value");
    return;
  }
  const std::string path = set.substr(0, equal), raw = set.substr(equal + 1);
  raw_set_ = &raw;
  const RecipeKey* key = find_recipe_key(path);
  const bool is_list = key && type_name(*key).substr(0, 4) == "list";
  toml::table table;
  // The value as TOML; a list may come without its brackets; all else is a string.
  const size_t before = problems_.size();
  const auto parse = [&](const std::string& text) {
    if (raw.size() > kMaxBytes || !check_nesting(text)) return false;
    try {
      table = toml::parse(text);
      return table.size() == 1;  // a line break in the value could smuggle in more
    } catch (const toml::parse_error&) {
      return false;
    } catch (const TomlAssertion&) {
      return false;
    }
  };
  if (!parse("v = " + raw) && !(is_list && parse("v = [" + raw + "]"))) {
    table = toml::table{};
    table.insert("v", raw.substr(0, kMaxBytes));
  }
  problems_.resize(before);
  visit(path, *table.get("v"), {0, 0, true});
  raw_set_ = nullptr;
}

void Reader::fail(std::initializer_list<std::string_view> keys, const std::string& message) {
  // The first of the keys that was written somewhere is where to look.
  for (std::string_view key : keys) {
    const auto found = origins_.find(key);
    if (found == origins_.end()) continue;
    const bool named = key == *keys.begin();
    return problem(found->second, named ? key : *keys.begin(), message);
  }
  problem({}, *keys.begin(), message);
}

void Reader::check_all() {
  for (const RecipeKey& key : recipe_keys()) {
    if (!origins_.count(key.path)) check(key, {});
  }
  // Rules read several values: they say nothing useful while one of them is wrong.
  if (problems_.empty()) check_rules(recipe_, *this);
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
  reader.check_all();
  reader.finish();
  if (recipe.name.empty()) {
    recipe.name = stem(file);
    // A file name may have characters that a run name may not.
    if (check_value(*find_recipe_key("name"), recipe)) recipe.name = "recipe";
  }
  return recipe;
}

void validate(const Recipe& recipe) {
  Recipe copy = recipe;
  Reader reader(copy, "recipe");
  reader.check_all();
  reader.finish();
}

}  // namespace lathe
