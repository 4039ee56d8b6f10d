#include "nn/families/layer_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace lathe {
namespace {

constexpr std::string_view kLayerActivations[] = {
    "none", "relu", "relu6",   "leaky_relu", "elu",        "selu",         "gelu",        "gelu_erf", "silu",
    "mish", "tanh", "sigmoid", "softplus",   "hard_swish", "hard_sigmoid", "log_sigmoid", "softsign"};
constexpr std::span<const std::string_view> kLayerFunctions = std::span(kLayerActivations).subspan(1);
constexpr std::string_view kPoolKinds[] = {"avg", "max"};
constexpr std::string_view kResizeKinds[] = {"nearest", "bilinear"};
constexpr std::string_view kSequenceOf[] = {"pixels", "rows"};
constexpr std::string_view kStatesOf[] = {"all", "last"};

constexpr double kMaxWidth = 1 << 20;

constexpr LayerKey integer(std::string_view name, double value, double min, double max, std::string_view help) {
  return {name, LayerKind::integer, value, {}, false, min, max, {}, help};
}
constexpr LayerKey number(std::string_view name, double value, double min, double max, std::string_view help) {
  return {name, LayerKind::number, value, {}, false, min, max, {}, help};
}
constexpr LayerKey flag(std::string_view name, bool value, std::string_view help) {
  return {name, LayerKind::boolean, value ? 1.0 : 0.0, {}, false, 0, 1, {}, help};
}
constexpr LayerKey choice(std::string_view name, std::string_view word, std::span<const std::string_view> choices,
                          std::string_view help) {
  return {name, LayerKind::choice, 0, word, false, 0, 0, choices, help};
}
constexpr LayerKey text(std::string_view name, std::string_view help) {
  return {name, LayerKind::text, 0, "", false, 0, 0, {}, help};
}
constexpr LayerKey padding(double value, std::string_view help) {
  return {"padding", LayerKind::padding, value, {}, false, 0, 1024, {}, help};
}
constexpr LayerKey required(LayerKey key) {
  key.required = true;
  return key;
}

constexpr LayerKey kOutKey = integer("out", 0, 0, kMaxWidth, "width of the output; 0: the number of classes or tokens");
constexpr LayerKey kChannelsKey =
    integer("out", 0, 0, 65536, "channels of the output; 0: the number of classes, or of the channels of an image");
constexpr LayerKey kFactorKey = integer("factor", 2, 1, 1024, "by which height and width change");
constexpr LayerKey kBiasKey = flag("bias", true, "adds a bias");
constexpr LayerKey kHeadsKey = integer("heads", 4, 1, 1024, "attention heads; must divide the width");
constexpr LayerKey kCausalKey = flag("causal", false, "a position sees those before it alone; needed for text");
constexpr LayerKey kStateKey = integer("width", 1, 1, kMaxWidth, "of the state");
constexpr LayerKey kStatesKey = choice("states", "all", kStatesOf, "the states at all positions, or the last one");
constexpr LayerKey kBothWaysKey =
    flag("both_ways", false, "a second one reads from the end; their states stand side by side");
constexpr LayerKey kEpsKey = number("eps", 1e-5, 0, 1, "added to the variance");
constexpr std::string_view kPoolPadding =
    "pixels at each side, or \"same\": the size of the output is that of the input / stride";

const std::vector<LayerType>& layer_table() {
  static const std::vector<LayerType> table{
      {"conv",
       "2-d convolution of an image",
       {required(kChannelsKey), integer("kernel", 3, 1, 1024, "side of the kernel"),
        integer("stride", 1, 1, 64, "step of the kernel"), padding(-1, kPoolPadding),
        integer("dilation", 1, 1, 1024, "distance of the kernel's taps"),
        integer("groups", 1, 1, 65536, "channels are convolved in so many groups; as many as channels: depthwise"),
        kBiasKey}},
      {"conv1d",
       "convolution over the positions of a sequence",
       {required(kOutKey), integer("kernel", 3, 1, 1024, "length of the kernel"),
        integer("stride", 1, 1, 1024, "step of the kernel"), padding(-1, kPoolPadding),
        integer("dilation", 1, 1, 1024, "distance of the kernel's taps"),
        integer("groups", 1, 1, 65536, "channels are convolved in so many groups"), kCausalKey, kBiasKey}},
      {"conv_transpose",
       "transposed convolution, which makes an image larger",
       {required(kChannelsKey), integer("kernel", 2, 1, 1024, "side of the kernel"),
        integer("stride", 2, 1, 64, "by which the image grows"),
        integer("padding", 0, 0, 1024, "pixels cut off at each side"),
        integer("extra", 0, 0, 1024, "rows and columns more, below and right"),
        integer("groups", 1, 1, 65536, "channels are convolved in so many groups"), kBiasKey}},
      {"dense",
       "fully connected layer: of a whole image, of each position of a sequence",
       {required(kOutKey), kBiasKey}},
      {"batch_norm", "normalises each channel over the batch, with running statistics", {}},
      {"layer_norm", "normalises each position over its channels", {kEpsKey}},
      {"rms_norm", "divides each position by the root mean square of its channels", {}},
      {"group_norm",
       "normalises groups of channels of each sample",
       {integer("groups", 8, 1, 65536, "number of groups; must divide the channels"), kEpsKey}},
      {"instance_norm", "normalises each channel of each sample over all places", {kEpsKey}},
      {"max_pool",
       "largest value of each window",
       {integer("kernel", 2, 1, 1024, "side of the window"),
        integer("stride", 0, 0, 1024, "step of the window; 0: its side"), padding(0, kPoolPadding)}},
      {"avg_pool",
       "mean of each window",
       {integer("kernel", 2, 1, 1024, "side of the window"),
        integer("stride", 0, 0, 1024, "step of the window; 0: its side"), padding(0, kPoolPadding)}},
      {"global_pool",
       "mean or maximum over all pixels, or over all positions",
       {choice("kind", "avg", kPoolKinds, "mean or maximum")}},
      {"adaptive_pool",
       "mean or maximum of an image's parts, as many as are asked for",
       {integer("height", 1, 1, 65536, "of the output"), integer("width", 1, 1, 65536, "of the output"),
        choice("kind", "avg", kPoolKinds, "mean or maximum")}},
      {"resize",
       "an image at another size",
       {kFactorKey, integer("height", 0, 0, 65536, "of the output, instead of the factor; 0: by the factor"),
        integer("width", 0, 0, 65536, "of the output, instead of the factor; 0: by the factor"),
        choice("kind", "nearest", kResizeKinds, "the nearest pixel, or between pixels")}},
      {"pixel_shuffle",
       "channels to pixels: an image factor times as large with factor^2 fewer channels",
       {kFactorKey}},
      {"pixel_unshuffle", "pixels to channels: the inverse of pixel_shuffle", {kFactorKey}},
      {"concat",
       "the channels of another layer behind those of its input",
       {required(text("with", "the layer whose output is appended"))}},
      {"dropout", "drops activations while training", {required(number("rate", 0, 0, 0.999, "part that is dropped"))}},
      {"flatten", "one row per sample (dense does it by itself)", {}},
      {"activation", "a nonlinearity by itself", {required(choice("function", "relu", kLayerFunctions, "which one"))}},
      {"prelu", "x where it is positive, elsewhere x times a slope for each channel that is learnt", {}},
      {"sequence",
       "an image as a sequence",
       {choice("of", "pixels", kSequenceOf, "a position is a pixel, or a row with all its pixels")}},
      {"embedding",
       "tokens to vectors; as the first layer it makes the network one for text",
       {required(integer("width", 1, 1, kMaxWidth, "length of the vectors"))}},
      {"positions", "adds a learned vector to each position", {}},
      {"lstm", "recurrent layer over the positions of a sequence", {required(kStateKey), kStatesKey, kBothWaysKey}},
      {"gru", "recurrent layer with fewer gates", {required(kStateKey), kStatesKey, kBothWaysKey}},
      {"attention",
       "self-attention over the positions of a sequence",
       {kHeadsKey, kCausalKey, integer("kv_heads", 0, 0, 1024, "heads of keys and values; 0: heads"),
        flag("rotary", false, "queries and keys are turned by their positions"), kBiasKey}},
      {"transformer",
       "layer norm, attention, sum; layer norm, two dense layers with GELU, sum",
       {kHeadsKey, kCausalKey, integer("feed_forward", 0, 0, kMaxWidth, "width inside; 0: 4 times that of the input"),
        number("dropout", 0, 0, 0.999, "part dropped from both branches")}},
  };
  return table;
}

constexpr LayerKey kCommonKeys[] = {
    text("name", "by which other layers refer to it, and of its weights; without one: type and index"),
    text("input", "the layer whose output it reads; without one: the layer before it"),
    text("add", "the layer whose output is added to its own, before the activation"),
    choice("activation", "none", kLayerActivations, "applied to its output"),
};

const LayerKey* find_layer_key(const LayerType& type, std::string_view name) {
  for (const LayerKey& k : type.keys)
    if (k.name == name) return &k;
  for (const LayerKey& k : kCommonKeys)
    if (k.name == name) return &k;
  return nullptr;
}

std::string layer_value_text(const LayerValue& v) {
  return std::visit(
      [](const auto& x) -> std::string {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_same_v<T, std::string>) return fmt::format("\"{}\"", x.substr(0, 60));
        return fmt::format("{}", x);
      },
      v);
}

std::string expected_text(const LayerKey& k) {
  const auto bound = [](double v) {
    return fmt::format("{}", v == std::floor(v) ? std::to_string(std::llround(v)) : fmt::format("{}", v));
  };
  switch (k.kind) {
    case LayerKind::boolean: return "true or false";
    case LayerKind::integer: return fmt::format("an integer from {} to {}", bound(k.min), bound(k.max));
    case LayerKind::number: return fmt::format("a number from {} to {}", bound(k.min), bound(k.max));
    case LayerKind::text: return "the name of a layer: letters, digits, '_', '-'";
    case LayerKind::padding: return fmt::format("\"same\" or an integer from 0 to {}", bound(k.max));
    case LayerKind::choice: break;
  }
  std::vector<std::string> quoted;
  for (std::string_view c : k.choices) quoted.push_back(fmt::format("\"{}\"", c));
  return fmt::format("one of {}", fmt::join(quoted, ", "));
}

bool is_layer_name(const std::string& s) {
  return s.size() <= 100 && std::all_of(s.begin(), s.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
         });
}

bool fits(const LayerKey& k, const LayerValue& v) {
  const auto* i = std::get_if<int64_t>(&v);
  const auto* s = std::get_if<std::string>(&v);
  const auto* d = std::get_if<double>(&v);
  const auto within = [&](double x) { return x >= k.min && x <= k.max; };
  switch (k.kind) {
    case LayerKind::boolean: return std::holds_alternative<bool>(v);
    case LayerKind::integer: return i && within(static_cast<double>(*i));
    case LayerKind::number: return (d && within(*d)) || (i && within(static_cast<double>(*i)));
    case LayerKind::text: return s && is_layer_name(*s);
    case LayerKind::choice: return s && std::find(k.choices.begin(), k.choices.end(), *s) != k.choices.end();
    case LayerKind::padding: return (s && *s == "same") || (i && within(static_cast<double>(*i)));
  }
  return false;
}

LayerValue default_value(const LayerKey& k) {
  switch (k.kind) {
    case LayerKind::boolean: return k.value != 0;
    case LayerKind::integer: return static_cast<int64_t>(k.value);
    case LayerKind::number: return k.value;
    case LayerKind::text:
    case LayerKind::choice: return std::string(k.word);
    case LayerKind::padding: break;
  }
  return k.value < 0 ? LayerValue(std::string("same")) : LayerValue(static_cast<int64_t>(k.value));
}

// The key as the build wants it, given or not.
LayerValue value_of(const LayerSpec& s, std::string_view key) {
  const LayerType* type = find_layer_type(s.type);
  const LayerKey* k = type ? find_layer_key(*type, key) : nullptr;
  LATHE_CHECK(k, "layer {} has no key {}", s.type, key);
  for (const auto& [name, value] : s.keys)
    if (name == key) return value;
  return default_value(*k);
}

}  // namespace

std::span<const LayerType> layer_types() { return layer_table(); }
std::span<const LayerKey> common_layer_keys() { return kCommonKeys; }

const LayerType* find_layer_type(std::string_view name) {
  for (const LayerType& t : layer_table())
    if (t.name == name) return &t;
  return nullptr;
}

std::vector<LayerProblem> check_layer(const LayerSpec& s) {
  const LayerType* type = find_layer_type(s.type);
  if (!type) {
    std::vector<std::string_view> names;
    for (const LayerType& t : layer_table()) names.push_back(t.name);
    return {{"",
             s.type.empty() ? fmt::format("expected type = one of {}", fmt::join(names, ", "))
                            : fmt::format("unknown type of layer, known: {}", fmt::join(names, ", ")),
             s.type, names}};
  }
  std::vector<LayerProblem> out;
  for (const auto& [name, value] : s.keys) {
    const LayerKey* k = find_layer_key(*type, name);
    if (!k) {
      std::vector<std::string_view> names;
      for (const LayerKey& known : type->keys) names.push_back(known.name);
      for (const LayerKey& known : kCommonKeys) names.push_back(known.name);
      out.push_back(
          {name, fmt::format("unknown key of {}, known: {}", type->name, fmt::join(names, ", ")), name, names});
    } else if (!fits(*k, value)) {
      LayerProblem p{name, fmt::format("expected {}, got {}", expected_text(*k), layer_value_text(value)), "", {}};
      if (const auto* word = std::get_if<std::string>(&value); word && k->kind == LayerKind::choice) {
        p.wrong = *word;
        p.words.assign(k->choices.begin(), k->choices.end());
      }
      out.push_back(std::move(p));
    }
  }
  for (const LayerKey& k : type->keys)
    if (k.required &&
        std::none_of(s.keys.begin(), s.keys.end(), [&](const auto& given) { return given.first == k.name; }))
      out.push_back({"", fmt::format("{} needs {}: {}", type->name, k.name, k.help), "", {}});
  return out;
}

LayerSpec normalized(const LayerSpec& s) {
  LayerSpec out{s.type, {}};
  const LayerType* type = find_layer_type(s.type);
  if (!type) return s;
  const auto take = [&](const LayerKey& k) {
    for (const auto& [name, value] : s.keys) {
      if (name != k.name) continue;
      LayerValue v = value;
      if (const auto* i = std::get_if<int64_t>(&v); i && k.kind == LayerKind::number) v = static_cast<double>(*i);
      if (k.required || v != default_value(k)) out.keys.emplace_back(name, v);
    }
  };
  for (const LayerKey& k : type->keys) take(k);
  for (const LayerKey& k : kCommonKeys) take(k);
  return out;
}

int64_t layer_integer(const LayerSpec& s, std::string_view key) { return std::get<int64_t>(value_of(s, key)); }
bool layer_flag(const LayerSpec& s, std::string_view key) { return std::get<bool>(value_of(s, key)); }
std::string layer_text(const LayerSpec& s, std::string_view key) { return std::get<std::string>(value_of(s, key)); }

double layer_number(const LayerSpec& s, std::string_view key) {
  const LayerValue v = value_of(s, key);
  if (const auto* i = std::get_if<int64_t>(&v)) return static_cast<double>(*i);
  return std::get<double>(v);
}

int64_t layer_padding(const LayerSpec& s, std::string_view key) {
  const LayerValue v = value_of(s, key);
  const auto* i = std::get_if<int64_t>(&v);
  return i ? *i : -1;
}

std::string layer_reference() {
  std::string out = "| type | key | default | allowed | meaning |\n|---|---|---|---|---|\n";
  const auto row = [&](std::string_view type, const LayerKey& k) {
    out +=
        fmt::format("| {} | `{}` | {} | {} | {} |\n", type, k.name,
                    k.required ? "required" : "`" + layer_value_text(default_value(k)) + "`", expected_text(k), k.help);
  };
  for (const LayerType& t : layer_table()) {
    out += fmt::format("| `{}` | | | | {} |\n", t.name, t.doc);
    for (const LayerKey& k : t.keys) row("", k);
  }
  out += "| every type | | | | |\n";
  for (const LayerKey& k : kCommonKeys) row("", k);
  return out;
}

}  // namespace lathe
