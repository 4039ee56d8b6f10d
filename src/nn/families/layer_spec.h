// A network as a list of layers: what [[model.layers]] of a recipe becomes. The types of layers, their keys and their
// help stand in one table (layer_spec.cpp); checks, printing and the reference are derived from it, and layer_list.cpp
// builds the graph.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lathe {

using LayerValue = std::variant<bool, int64_t, double, std::string>;  // of a key of a layer

struct LayerSpec {                                       // One of [[model.layers]].
  std::string type;                                      // "dense", "conv", ...
  std::vector<std::pair<std::string, LayerValue>> keys;  // without `type`
  friend bool operator==(const LayerSpec&, const LayerSpec&) = default;
};

enum class LayerKind {  // What a key's value is.
  boolean,              // true or false
  integer,              // from min to max
  number,               // from min to max
  text,                 // any
  choice,               // one of `choices`
  padding,              // "same" or an integer
};

struct LayerKey {         // A key of a layer type.
  std::string_view name;  // as in the table
  LayerKind kind;         // of its value
  double value;           // what it is where it is not given: booleans as 0 and 1; padding: -1 is "same"
  std::string_view word;  // the same for texts and choices
  bool required;          // it has no default
  double min, max;        // of integers and numbers
  std::span<const std::string_view> choices;  // of words
  std::string_view help;                      // for people
};

struct LayerType {             // A kind of layer.
  std::string_view name;       // in `type = ...`
  std::string_view doc;        // one line
  std::vector<LayerKey> keys;  // all that it takes
};

std::span<const LayerType> layer_types();                 // the table
std::span<const LayerKey> common_layer_keys();            // of every type: name, input, add, activation
const LayerType* find_layer_type(std::string_view name);  // or null

// What is wrong with a layer by itself; `key` is empty where the type is. `words` are what may have been meant.
struct LayerProblem {
  std::string key, message;             // the key at fault, and what is wrong with it
  std::string wrong;                    // what was written
  std::vector<std::string_view> words;  // that it might have been
};
std::vector<LayerProblem> check_layer(const LayerSpec&);  // empty: nothing is wrong

// Keys in the order of the table, without those that say what holds anyway: equal layers become equal.
LayerSpec normalized(const LayerSpec&);

// The value of a key: as given, else the table's.
int64_t layer_integer(const LayerSpec&, std::string_view key);
double layer_number(const LayerSpec&, std::string_view key);     // of a key, or its default
bool layer_flag(const LayerSpec&, std::string_view key);         // of a key, or its default
std::string layer_text(const LayerSpec&, std::string_view key);  // of a key, or its default
int64_t layer_padding(const LayerSpec&, std::string_view key);   // -1: "same"

std::string layer_reference();  // all types and keys as Markdown

}  // namespace lathe
