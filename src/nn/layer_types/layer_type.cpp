#include "nn/layer_types/layer_type.h"

#include <fmt/format.h>

#include <algorithm>

#include "ops/elementwise.h"

namespace lathe {

bool LayerParams::is_layer_name(std::string_view s) {
  return s.size() <= 100 && std::ranges::all_of(s, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
         });
}

std::vector<std::string_view> LayerParams::activations(bool with_none) {
  std::vector<std::string_view> all{"none",     "relu",       "relu6",        "leaky_relu",  "elu",     "selu",
                                    "gelu",     "gelu_erf",   "silu",         "mish",        "tanh",    "sigmoid",
                                    "softplus", "hard_swish", "hard_sigmoid", "log_sigmoid", "softsign"};
  if (!with_none) all.erase(all.begin());
  return all;
}

std::span<const LayerType> layer_types() {
  static const LayerTypes all = [] {
    LayerTypes out;
    for (const auto theme : {conv_layers, plain_layers, norm_layers, image_layers, sequence_layers})
      for (const LayerType& t : theme()) out.push_back(t);
    return out;
  }();
  return all;
}

std::span<const TableType> layer_tables() {
  static const std::vector<TableType> all = [] {
    std::vector<TableType> out;
    for (const LayerType& t : layer_types()) out.push_back(t.table);
    return out;
  }();
  return all;
}

const LayerType& type_of_layer(const ParamSet& layer) {
  for (const LayerType& t : layer_types())
    if (&t.table.schema() == &layer.schema()) return t;
  LATHE_CHECK(false, "no type of layer has these parameters");
}

ParamSet make_layer_params(std::string_view type, const NamedValues& values) {
  for (const LayerType& t : layer_types())
    if (t.table.name == type) return ParamSet(t.table.schema(), values);
  throw UserError(fmt::format("no type of layer is called \"{}\"", type));
}

bool takes_tokens(const Tables& layers) { return !layers.empty() && type_of_layer(layers[0]).takes_tokens; }

std::string shape_text(const Shape& s) {
  std::string out = "[N";
  for (int i = 1; i < s.ndim(); ++i) out += fmt::format(", {}", s[i]);
  return out + "]";
}

Value LayerContext::output_of(const char* key, const std::string& layer) const {
  const auto found = outputs_.find(layer);
  if (found != outputs_.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [known, value] : outputs_) names.push_back(known);
  if (names.empty()) names.push_back("none has one");
  fail(fmt::format("{}: expected the name of an earlier layer ({}), got \"{}\"", key, fmt::join(names, ", "), layer));
}

void LayerContext::want(bool ok, const char* what) const {
  if (!ok) fail(fmt::format("{}: expected {}, got {}", type, what, shape_text(x_.shape())));
}

bool LayerContext::causal(bool given) const {
  if (text && !given) fail("expected causal = true: a token predicts the next one, which it must not see");
  return given;
}

Value LayerContext::build(const Tables& layers, Value x) {
  for (at_ = 0; at_ < layers.size(); ++at_) {
    try {
      x = layer(layers[at_], x);
    } catch (const LayerError&) {
      throw;
    } catch (const UserError& e) {
      fail(fmt::format("{} of {}: {}", type, shape_text(x_.shape()), e.what()));
    }
  }
  return x;
}

Value LayerContext::layer(const ParamSet& params, Value before) {
  const LayerType& row = type_of_layer(params);
  const auto common = [&](std::string_view key) {
    return *std::get<std::string*>(params.at(*params.schema().find(key)));
  };
  const std::string given = common("name"), from = common("input"), add = common("add"), f = common("activation");
  type = row.table.name;
  name = given.empty() ? fmt::format("{}{}", type, at_) : given;
  if (outputs_.count(name)) fail(fmt::format("expected a name that no other layer has, got \"{}\"", name));
  x_ = from.empty() ? before : output_of("input", from);
  const bool tokens = x_.dtype() == DType::i32;
  if (tokens != row.takes_tokens)
    fail(tokens ? fmt::format("expected an embedding as the first layer for tokens, got {}", type)
                : "expected tokens as the input of an embedding: it must be the first layer, for text");
  Value y = row.build(*this, params, x_);
  if (!add.empty()) {
    const Value other = output_of("add", add);
    if (other.shape() != y.shape())
      fail(fmt::format("add: expected an output of the same shape as {}'s {}, got \"{}\" of {}", type,
                       shape_text(y.shape()), add, shape_text(other.shape())));
    y = y + other;
  }
  if (f != "none") y = activation(f, y);
  outputs_[name] = y;
  return y;
}

std::string layer_reference() {
  std::string out = "| type | key | default | allowed | meaning |\n|---|---|---|---|---|\n";
  const Schema& common = schema_of<LayerParams>();
  const auto row = [&](const Schema& schema, const Field& f) {
    const ParamSet defaults(schema);
    const std::string value = value_text(defaults.at(f), f.allowed);
    out += fmt::format("| | `{}` | {} | {} | {} |\n", f.name, f.allowed.required ? "required" : "`" + value + "`",
                       allowed_text(defaults.at(f), f.allowed), f.help);
  };
  for (const LayerType& t : layer_types()) {
    out += fmt::format("| `{}` | | | | {} |\n", t.table.name, t.table.doc);
    for (const Field& f : t.table.schema().fields)
      if (!common.find(f.name)) row(t.table.schema(), f);
  }
  out += "| every type | | | | |\n";
  for (const Field& f : common.fields) row(common, f);
  return out;
}

}  // namespace lathe
