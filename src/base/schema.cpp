#include "base/schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/format_bytes.h"

namespace lathe {
namespace {

template <class T>
constexpr bool is_list = std::is_same_v<T, Ints> || std::is_same_v<T, Doubles>;

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

bool same_value(FieldPtr a, FieldPtr b) {
  return std::visit(
      [&](const auto* p) {
        const auto* q = std::get_if<std::remove_cv_t<std::remove_pointer_t<decltype(p)>>*>(&b);
        return q && *p == **q;
      },
      a);
}

std::string got_text(const Allowed& allowed, const ParamSet& item) {
  const TableType* type = find_type(allowed, item.schema());
  return table_text(item, type ? type->name : "");
}

bool is_good_table(const Allowed& allowed, const ParamSet& item) {
  if (!find_type(allowed, item.schema())) return false;
  return std::ranges::none_of(item.schema().fields,
                              [&](const Field& f) { return check_value(item.at(f), f.allowed).has_value(); });
}

}  // namespace

const Field* Schema::find(std::string_view name) const {
  const auto found = std::ranges::find(fields, name, &Field::name);
  return found == fields.end() ? nullptr : &*found;
}

std::vector<std::string_view> Schema::names() const {
  std::vector<std::string_view> out;
  for (const Field& f : fields) out.push_back(f.name);
  return out;
}

ParamValue::ParamValue(Tables v) : value_(std::make_shared<Tables>(std::move(v))) {}

bool ParamValue::assign_to(FieldPtr field) const {
  return std::visit(
      [&](auto* p) {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, Tables>) {
          const auto* v = std::get_if<std::shared_ptr<Tables>>(&value_);
          if (v) *p = **v;
          return v != nullptr;
        } else if constexpr (std::is_same_v<T, ByteSize>) {
          const auto* v = std::get_if<int64_t>(&value_);
          if (v) p->bytes = *v;
          return v != nullptr;
        } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>) {
          const auto* whole = std::get_if<int64_t>(&value_);
          const auto* number = std::get_if<double>(&value_);
          if (whole) *p = static_cast<double>(*whole);
          if (number) *p = *number;
          return whole || number;
        } else {
          if constexpr (std::is_same_v<T, Strings>) {
            if (const auto* one = std::get_if<std::string>(&value_)) return p->assign(1, *one), true;
          }
          const auto* v = std::get_if<T>(&value_);
          if (v) *p = *v;
          return v != nullptr;
        }
      },
      field);
}

ParamSet::ParamSet() : ParamSet(schema_of<NoFields>()) {}

ParamSet::ParamSet(const Schema& schema, const NamedValues& values)
    : schema_(&schema), data_(schema.copy(schema.defaults.get())) {
  for (const auto& [name, value] : values) set(name, value);
}

ParamSet::ParamSet(const ParamSet& other) : schema_(other.schema_), data_(schema_->copy(other.data_.get())) {}

ParamSet& ParamSet::operator=(ParamSet other) noexcept {
  schema_ = other.schema_;
  data_ = std::move(other.data_);
  return *this;
}

void ParamSet::check_type(const std::type_info& type) const {
  LATHE_CHECK(*schema_->type == type, "settings are {}, not {}", schema_->type->name(), type.name());
}

ParamSet& ParamSet::set(std::string_view name, const ParamValue& value) {
  const Field* f = schema_->find(name);
  LATHE_USER_CHECK(f, "{}: no such setting, known: {}", name, fmt::join(schema_->names(), ", "));
  std::string word;
  if (!f->allowed.word.empty() && value.assign_to(&word) && word == f->allowed.word)
    return set(name, ParamValue(f->allowed.word_value));
  LATHE_USER_CHECK(value.assign_to(at(*f)), "{}: expected {}, got another kind of value", name,
                   allowed_text(at(*f), f->allowed));
  return *this;
}

void ParamSet::reset(const Field& f) {
  std::visit([&](auto* p) { *p = *std::get<decltype(p)>(f.at(schema_->defaults.get())); }, at(f));
}

bool operator==(const ParamSet& a, const ParamSet& b) {
  return a.schema_ == b.schema_ &&
         std::ranges::all_of(a.schema_->fields, [&](const Field& f) { return same_value(a.at(f), b.at(f)); });
}

const ParamSet* ParamSets::find(const Schema& schema) const {
  const auto found = std::ranges::find_if(sets_, [&](const ParamSet& s) { return &s.schema() == &schema; });
  return found == sets_.end() ? nullptr : &*found;
}

ParamSet& ParamSets::of(const Schema& schema) {
  const ParamSet* found = find(schema);
  return found ? const_cast<ParamSet&>(*found) : sets_.emplace_back(schema);
}

FieldPtr ParamSets::at(const Schema& schema, const Field& f) const {
  const ParamSet* found = find(schema);
  return found ? found->at(f) : f.at(schema.defaults.get());
}

bool ParamSets::is_used(const Schema& schema, const Field& f) const {
  const ParamSet* found = find(schema);
  return (found ? found->is_used(f) : !f.used || f.used(schema.defaults.get())) &&
         (!f.used_among || f.used_among(*this));
}

bool operator==(const ParamSets& a, const ParamSets& b) {
  const auto agree = [](const ParamSets& some, const ParamSets& others) {
    return std::ranges::all_of(some.sets_, [&](const ParamSet& s) {
      const Schema& schema = s.schema();
      return std::ranges::all_of(schema.fields,
                                 [&](const Field& f) { return same_value(s.at(f), others.at(schema, f)); });
    });
  };
  return agree(a, b) && agree(b, a);
}

bool copy_value(const ParamSet& from, std::string_view name, ParamSet& to) {
  const Field *source = from.schema().find(name), *target = to.schema().find(name);
  if (!source || !target) return false;
  const FieldPtr value = from.at(*source);
  return std::visit(
      [&](auto* p) {
        const auto* same = std::get_if<decltype(p)>(&value);
        if (same) *p = **same;
        return same != nullptr;
      },
      to.at(*target));
}

const TableType* find_type(const Allowed& allowed, const Schema& schema) {
  for (const TableType& t : allowed.tables())
    if (&t.schema() == &schema) return &t;
  return nullptr;
}

const TableType* find_type(const Allowed& allowed, std::string_view name) {
  const auto types = allowed.tables();
  const auto found = std::ranges::find(types, name, &TableType::name);
  return found == types.end() ? nullptr : &*found;
}

std::string type_name(FieldPtr field) {
  static constexpr const char* kNames[] = {"boolean",          "integer",         "number", "string",
                                           "list of integers", "list of numbers", "size",   "list of strings",
                                           "number",           "list of tables"};
  static_assert(std::size(kNames) == std::variant_size_v<FieldPtr>);
  return kNames[field.index()];
}

std::string allowed_text(FieldPtr field, const Allowed& allowed) {
  return std::visit(
      [&](auto* p) -> std::string {
        using T = std::remove_pointer_t<decltype(p)>;
        if constexpr (std::is_same_v<T, bool>) {
          return "true or false";
        } else if constexpr (std::is_same_v<T, int64_t>) {
          const std::string word = allowed.word.empty() ? "" : fmt::format("\"{}\" or ", allowed.word);
          return word + "an integer" + range_text(allowed);
        } else if constexpr (std::is_same_v<T, double> || std::is_same_v<T, std::optional<double>>) {
          return "a number" + range_text(allowed);
        } else if constexpr (is_list<T>) {
          const char* what = std::is_same_v<T, Ints> ? "integers" : "numbers";
          return fmt::format("a list of {}{}{}", items_text(allowed), what, range_text(allowed));
        } else if constexpr (std::is_same_v<T, ByteSize>) {
          const std::string word = allowed.word.empty() ? "" : fmt::format("\"{}\" or ", allowed.word);
          return word + "a size like \"512MiB\": a number of B, KiB, MiB, GiB, TiB (1024) or KB, MB, GB, TB (1000)";
        } else if constexpr (std::is_same_v<T, Tables>) {
          const auto types = allowed.tables();
          if (types.size() == 1 && types[0].name.empty())
            return fmt::format("a list of tables with {}", fmt::join(types[0].schema().names(), ", "));
          return fmt::format("a list of up to {} tables with a type", allowed.max_items);
        } else if (!allowed.choices.empty()) {
          std::string text = "one of ";
          for (std::string_view choice : allowed.choices) text += (text.back() == ' ' ? "" : ", ") + quote_toml(choice);
          return text;
        } else if (!allowed.pattern.empty()) {
          return std::string(allowed.pattern);
        } else {
          return std::is_same_v<T, std::string> ? "a string" : "a string, or a list of them";
        }
      },
      field);
}

std::string value_text(FieldPtr field, const Allowed& allowed) {
  return std::visit(
      [&](const auto* p) -> std::string {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(p)>>;
        if constexpr (std::is_same_v<T, bool>) {
          return *p ? "true" : "false";
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return !allowed.word.empty() && *p == allowed.word_value ? quote_toml(allowed.word) : std::to_string(*p);
        } else if constexpr (std::is_same_v<T, double>) {
          return number_text(*p);
        } else if constexpr (std::is_same_v<T, std::optional<double>>) {
          return *p ? number_text(**p) : "none";
        } else if constexpr (std::is_same_v<T, std::string>) {
          return allowed.verbatim ? *p : quote_toml(*p);
        } else if constexpr (std::is_same_v<T, Strings>) {
          return p->size() == 1 ? quote_toml((*p)[0]) : list_text(*p, quote_toml);
        } else if constexpr (std::is_same_v<T, Ints>) {
          return list_text(*p, [](int64_t item) { return std::to_string(item); });
        } else if constexpr (std::is_same_v<T, Doubles>) {
          return list_text(*p, number_text);
        } else if constexpr (std::is_same_v<T, Tables>) {
          return list_text(*p, [&](const ParamSet& item) { return got_text(allowed, item); });
        } else {
          const bool is_word = !allowed.word.empty() && p->bytes == allowed.word_value;
          return quote_toml(is_word ? std::string(allowed.word) : size_text(*p));
        }
      },
      field);
}

// Only what differs from the defaults, so that equal tables have equal texts.
std::string table_text(const ParamSet& item, std::string_view type) {
  const ParamSet defaults(item.schema());
  std::string text = type.empty() ? "" : "type = " + quote_toml(type);
  for (const Field& f : item.schema().fields)
    if (f.allowed.required || !same_value(item.at(f), defaults.at(f)))
      text += fmt::format("{}{} = {}", text.empty() ? "" : ", ", f.name, value_text(item.at(f), f.allowed));
  return type.empty() ? "{" + text + "}" : "{ " + text + " }";
}

std::optional<BadValue> check_value(FieldPtr field, const Allowed& allowed) {
  return std::visit(
      [&](const auto* p) -> std::optional<BadValue> {
        using T = std::remove_cv_t<std::remove_pointer_t<decltype(p)>>;
        const auto bad = [&] { return BadValue{value_text(field, allowed), std::nullopt}; };
        const auto is_good = [&](const std::string& text) {
          const auto& choices = allowed.choices;
          return (choices.empty() || std::ranges::find(choices, text) != choices.end()) &&
                 (!allowed.matches || allowed.matches(text));
        };
        if constexpr (std::is_same_v<T, int64_t>) {
          if (!allowed.word.empty() && *p == allowed.word_value) return std::nullopt;
          if (!in_range(allowed, static_cast<double>(*p))) return bad();
        } else if constexpr (std::is_same_v<T, double>) {
          if (!in_range(allowed, *p)) return bad();
        } else if constexpr (std::is_same_v<T, std::optional<double>>) {
          if (*p && !in_range(allowed, **p)) return bad();
        } else if constexpr (std::is_same_v<T, std::string>) {
          if (!is_good(*p)) return bad();
        } else if constexpr (std::is_same_v<T, Strings>) {
          if (p->size() < allowed.min_items || !std::ranges::all_of(*p, is_good)) return bad();
        } else if constexpr (is_list<T>) {
          if (p->size() < allowed.min_items || p->size() > allowed.max_items) {
            return BadValue{fmt::format("{} item{}", p->size(), p->size() == 1 ? "" : "s"), std::nullopt};
          }
          for (size_t i = 0; i < p->size(); ++i) {
            if (in_range(allowed, static_cast<double>((*p)[i]))) continue;
            return BadValue{number_text(static_cast<double>((*p)[i])), i};
          }
        } else if constexpr (std::is_same_v<T, ByteSize>) {
          if (p->bytes < 0) return bad();
        } else if constexpr (std::is_same_v<T, Tables>) {
          if (p->size() > allowed.max_items) return BadValue{fmt::format("{} tables", p->size()), std::nullopt};
          for (size_t i = 0; i < p->size(); ++i)
            if (!is_good_table(allowed, (*p)[i])) return BadValue{got_text(allowed, (*p)[i]), i};
        }
        return std::nullopt;
      },
      field);
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

std::string choice_text(std::string_view key, std::span<const std::string_view> names) {
  std::string text = std::string(key) + " =";
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? " " : i + 1 < names.size() ? ", " : " or ") + quote_toml(names[i]);
  return text;
}

}  // namespace lathe
