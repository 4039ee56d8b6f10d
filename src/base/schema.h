// Schemas: what a struct of settings has, said once. A struct lists its members in a static function `fields`:
//
//   struct CnnParams {
//     Ints channels{32, 64};
//     double dropout = 0;
//     static void fields(auto&& f) {
//       f("channels", &CnnParams::channels, allow::list(allow::range(1, 65536), 1, 16), "channels of each stage");
//       f("dropout", &CnnParams::dropout, allow::below(0, 1), "part of activations dropped while training");
//     }
//   };
//
// Names, kinds and help stand there, defaults are the members' initialisers. Keys of recipes, checks, errors, printing,
// comparison and reference tables are derived from it. A ParamSet holds such a struct without knowing its type.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <variant>
#include <vector>

#include "base/shape.h"

namespace lathe {

class ParamSet;
class ParamSets;
struct Schema;

using Doubles = std::vector<double>;       // lists in recipes
using Strings = std::vector<std::string>;  // one, or a list of them
using Tables = std::vector<ParamSet>;      // a list of tables, like [[optimizer.groups]]

struct ByteSize {     // A size in memory, "512MiB" in recipes.
  int64_t bytes = 0;  // in all
  friend bool operator==(const ByteSize&, const ByteSize&) = default;
};

// A member of a struct: the kinds of values that settings have. An optional number may be absent.
using FieldPtr = std::variant<bool*, int64_t*, double*, std::string*, Ints*, Doubles*, ByteSize*, Strings*,
                              std::optional<double>*, Tables*>;

struct TableType {            // What an item of a list of tables may be.
  std::string_view name;      // as `type` says; empty: items have no type, and this row is the only one
  std::string_view doc;       // one line
  const Schema& (*schema)();  // of its other keys
};

// What a value may be. For lists the range holds for each item.
struct Allowed {
  double min = -std::numeric_limits<double>::infinity();  // smallest number
  double max = std::numeric_limits<double>::infinity();   // largest number
  bool above_min = false, below_max = false;              // the bound itself is excluded
  size_t min_items = 0;                                   // of lists
  size_t max_items = std::numeric_limits<size_t>::max();  // of lists
  std::vector<std::string_view> choices{};                // of strings
  bool (*matches)(std::string_view) = nullptr;            // for strings that are no fixed choice
  std::string_view pattern{};                             // what `matches` wants, in words
  std::string_view word{};  // of an integer or a size: stands for `word_value`, which has no other text
  int64_t word_value = 0;   // see `word`
  bool verbatim = false;    // of a string: it is TOML already
  bool required = false;    // in a table of a list it must be written: it has no default
  std::span<const TableType> (*tables)() = nullptr;  // of lists of tables
};

namespace allow {                                                                  // Allowed, in the words of a field.
inline Allowed range(double min, double max) { return {.min = min, .max = max}; }  // both included
inline Allowed below(double min, double max) { return {.min = min, .max = max, .below_max = true}; }  // max excluded
inline Allowed above(double min, double max) { return {.min = min, .max = max, .above_min = true}; }  // min excluded
inline Allowed at_least(double min) { return {.min = min}; }                                          // min included
// One of some words; they must live as long as the program.
inline Allowed one_of(std::vector<std::string_view> words) { return {.choices = std::move(words)}; }
inline Allowed text(bool (*matches)(std::string_view), std::string_view pattern) {  // strings; in words
  return {.matches = matches, .pattern = pattern};
}
inline Allowed list(Allowed item, size_t min_items, size_t max_items) {  // of such items
  item.min_items = min_items;
  item.max_items = max_items;
  return item;
}
inline Allowed or_word(Allowed integer, std::string_view word, int64_t value) {  // a word may stand for a number
  integer.word = word;
  integer.word_value = value;
  return integer;
}
inline Allowed tables(std::span<const TableType> (*types)(), size_t max_items) {  // up to so many
  return {.max_items = max_items, .tables = types};
}
inline Allowed required(Allowed value) {  // without a default
  value.required = true;
  return value;
}
}  // namespace allow

struct Field {                                         // A member of a struct.
  std::string_view name;                               // its key
  Allowed allowed;                                     // its values
  std::string_view help;                               // for people
  std::function<FieldPtr(void*)> at;                   // the member of a struct
  std::function<bool(const void*)> used{};             // whether it has an effect beside the others; empty: always
  std::string_view needs{};                            // when it has one, in words
  std::function<bool(const ParamSets&)> used_among{};  // whether it has one beside other structs; empty: always
  std::string_view after{};  // the key behind which it is listed; empty: behind the field before it, or last
  bool stable = false;       // scripts may rely on it
  bool numbers = true;       // changes what a run computes; else it says where something is, how long or how fast
  bool fixed = false;        // what the outputs of a trained net mean holds for this value alone

  // Of a field that is being listed.
  Field& listed_after(std::string_view key) { return after = key, *this; }
  Field& is_stable() { return stable = true, *this; }        // see `stable`
  Field& keeps_numbers() { return numbers = false, *this; }  // see `numbers`
  Field& is_fixed() { return fixed = true, *this; }          // see `fixed`
};

struct Schema {                                    // What a struct has.
  const std::type_info* type;                      // of the struct
  std::vector<Field> fields;                       // in the order of printing
  std::shared_ptr<void> defaults;                  // a struct with its defaults, only to read
  std::shared_ptr<void> (*copy)(const void*);      // of one
  const Field* find(std::string_view name) const;  // or null
  std::vector<std::string_view> names() const;     // of all fields
};

// Two types of settings: those that say what they have.
template <class P>
concept HasFields = requires {
  P::fields([](auto&&...) {});
};

struct NoFields {  // Settings that there are none of.
  template <class F>
  static void fields(F&&) {}  // none
};

namespace detail {

// What `fields` is called with to make a schema. Forms of a call: name, member, [allowed,] help [, used, needs], where
// `used` is asked of the struct, or of the ParamSets that it is one of.
template <class P>
struct FieldList {
  std::vector<Field>& out;

  template <class Owner, class T>
  Field& operator()(std::string_view name, T Owner::*member, Allowed allowed, std::string_view help) const {
    static_assert(std::is_base_of_v<Owner, P>, "a field of another struct");
    out.push_back(
        {name, std::move(allowed), help, [member](void* p) -> FieldPtr { return &(static_cast<P*>(p)->*member); }});
    return out.back();
  }
  template <class Owner, class T>
  Field& operator()(std::string_view name, T Owner::*member, std::string_view help) const {
    return (*this)(name, member, Allowed{}, help);
  }
  template <class Owner, class T, class Q>
  Field& operator()(std::string_view name, T Owner::*member, Allowed allowed, std::string_view help,
                    bool (*used)(const Q&), std::string_view needs) const {
    Field& f = (*this)(name, member, std::move(allowed), help);
    if constexpr (std::is_same_v<Q, ParamSets>)
      f.used_among = used;
    else
      f.used = [used](const void* p) { return used(*static_cast<const P*>(p)); };
    f.needs = needs;
    return f;
  }
};

}  // namespace detail

template <class P>
const Schema& schema_of() {  // of a struct with `fields`; made at the first call
  static const Schema schema = [] {
    Schema s{&typeid(P), {}, std::make_shared<P>(), [](const void* p) {
               return std::shared_ptr<void>(std::make_shared<P>(*static_cast<const P*>(p)));
             }};
    P::fields(detail::FieldList<P>{s.fields});
    return s;
  }();
  return schema;
}

// A value by the name of its field, as programs write it. Whole numbers are numbers too.
class ParamValue {
 public:
  ParamValue(bool v) : value_(v) {}                           // a flag
  ParamValue(int v) : value_(int64_t{v}) {}                   // an integer
  ParamValue(int64_t v) : value_(v) {}                        // an integer
  ParamValue(double v) : value_(v) {}                         // a number
  ParamValue(const char* v) : value_(std::string(v)) {}       // a string
  ParamValue(std::string_view v) : value_(std::string(v)) {}  // a string
  ParamValue(std::string v) : value_(std::move(v)) {}         // a string
  ParamValue(Ints v) : value_(std::move(v)) {}                // a list of integers
  ParamValue(Doubles v) : value_(std::move(v)) {}             // a list of numbers
  ParamValue(Strings v) : value_(std::move(v)) {}             // a list of strings
  ParamValue(Tables v);                                       // a list of tables
  // Whether the field is of this kind; then it has the value.
  bool assign_to(FieldPtr) const;

 private:
  std::variant<bool, int64_t, double, std::string, Ints, Doubles, Strings, std::shared_ptr<Tables>> value_;
};

using NamedValues = std::vector<std::pair<std::string_view, ParamValue>>;  // {{"depth", 50}, {"stem", "imagenet"}}

// A struct of settings with its schema: a value that is copied, compared and printed by its fields.
class ParamSet {
 public:
  ParamSet();                                                        // without fields
  explicit ParamSet(const Schema& schema, const NamedValues& = {});  // its defaults, and what is named
  ParamSet(const ParamSet& other);                                   // a copy of the struct
  ParamSet(ParamSet&&) noexcept = default;                           // leaves nothing behind
  ParamSet& operator=(ParamSet other) noexcept;                      // of any schema
  template <class P>
  requires(!std::is_same_v<P, ParamSet> && HasFields<P>) ParamSet(P params)
      : schema_(&schema_of<P>()), data_(std::make_shared<P>(std::move(params))) {}  // that struct

  const Schema& schema() const { return *schema_; }  // of the struct
  template <class P>
  const P& as() const {  // the struct; InternalError where it is another
    check_type(typeid(P));
    return *static_cast<const P*>(data_.get());
  }
  template <class P>
  P& as() {  // the struct; InternalError where it is another
    check_type(typeid(P));
    return *static_cast<P*>(data_.get());
  }
  template <class P>
  bool is() const {  // whether as<P>() may be called
    return *schema_->type == typeid(P);
  }

  // The value of the field of that name; null where there is none of that kind.
  template <class T>
  const T* find(std::string_view name) const {
    const Field* f = schema_->find(name);
    const FieldPtr value = f ? at(*f) : FieldPtr();
    T* const* found = f ? std::get_if<T*>(&value) : nullptr;
    return found ? *found : nullptr;
  }
  template <class T>
  T* find(std::string_view name) {  // the same, to write
    return const_cast<T*>(std::as_const(*this).template find<T>(name));
  }
  FieldPtr at(const Field& f) { return f.at(data_.get()); }                      // to read or write
  FieldPtr at(const Field& f) const { return f.at(data_.get()); }                // to read
  bool is_used(const Field& f) const { return !f.used || f.used(data_.get()); }  // has an effect
  // UserError where there is no such field, or of another kind. The value is not checked.
  ParamSet& set(std::string_view name, const ParamValue&);
  void reset(const Field&);                                      // to its default
  friend bool operator==(const ParamSet& a, const ParamSet& b);  // same schema, same values

 private:
  void check_type(const std::type_info&) const;

  const Schema* schema_;
  std::shared_ptr<void> data_;  // never shared
};

// Structs of settings, at most one of each type; one that was not set has its defaults. Compared by fields.
class ParamSets {
 public:
  template <class P>
  const P& get() const {  // to read
    const ParamSet* found = find(schema_of<P>());
    return found ? found->as<P>() : *static_cast<const P*>(schema_of<P>().defaults.get());
  }
  template <class P>
  P& get() {  // to read or write
    return of(schema_of<P>()).template as<P>();
  }
  template <class P>
  ParamSets& set(P params) {  // from now on get<P>() returns it
    get<P>() = std::move(params);
    return *this;
  }
  template <class P>
  bool has() const {  // whether it was set, or asked for to write
    return find(schema_of<P>()) != nullptr;
  }

  FieldPtr at(const Schema& s, const Field& f) { return of(s).at(f); }  // to read or write
  FieldPtr at(const Schema&, const Field&) const;                       // to read
  bool is_used(const Schema&, const Field&) const;                      // has an effect
  void reset(const Schema& s, const Field& f) { of(s).reset(f); }       // to its default
  friend bool operator==(const ParamSets& a, const ParamSets& b);       // same values

 private:
  const ParamSet* find(const Schema&) const;
  ParamSet& of(const Schema&);

  std::vector<ParamSet> sets_;
};

// Gives a field of `to` the value that the field of that name has in `from`; false where there is none of its kind.
bool copy_value(const ParamSet& from, std::string_view name, ParamSet& to);

// A value of a field, and what is right and wrong with it.
std::string type_name(FieldPtr);                                 // "integer", "list of numbers", ...
std::string allowed_text(FieldPtr, const Allowed&);              // "an integer from 1 to 10"
std::string value_text(FieldPtr, const Allowed&);                // as TOML
std::string table_text(const ParamSet&, std::string_view type);  // an item of a list of tables, as TOML

// What is wrong with the value as it stands, as `got`, or nothing. For lists `item` is the index of the culprit.
struct BadValue {
  std::string got;             // the value
  std::optional<size_t> item;  // of a list
};
std::optional<BadValue> check_value(FieldPtr, const Allowed&);  // see BadValue

const TableType* find_type(const Allowed&, const Schema&);     // of an item of a list of tables
const TableType* find_type(const Allowed&, std::string_view);  // by its name; or null

// Receives what is wrong with settings that only fit together: the first key is the one to name.
class RuleReport {
 public:
  virtual ~RuleReport() = default;                                                              // for implementations
  virtual void report(std::span<const std::string_view> keys, const std::string& message) = 0;  // a broken rule
  void fail(std::initializer_list<std::string_view> keys, const std::string& message) {         // the same
    report({keys.begin(), keys.size()}, message);
  }
};

std::string quote_toml(std::string_view text);              // a TOML basic string
std::string number_text(double value);                      // shortest TOML float that reads back equal
std::string size_text(ByteSize size);                       // "512MiB"
std::optional<ByteSize> parse_size(std::string_view text);  // "512MiB", "16GB" or a number of bytes
// `key = "a", "b" or "c"`: a choice in words.
std::string choice_text(std::string_view key, std::span<const std::string_view> names);

}  // namespace lathe
