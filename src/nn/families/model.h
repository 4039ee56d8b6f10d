// Model families: functions that build the forward graph from parameters. A family is one file with a struct of static
// functions, and a row of the table in model.cpp; its keys in recipes follow from the fields of its parameters:
//
//   struct Line {
//     struct Params {
//       bool bias = true;
//       static void fields(auto&& f) { f("bias", &Params::bias, "adds a bias"); }
//     };
//     static constexpr FamilyInfo info{.name = "line", .doc = "one dense layer"};
//     static Value build(Net& net, const Params& p, const ModelInputs& in, Value x) {
//       return linear_of_image(net, "out", x, in.classes, p.bias);
//     }
//   };
//   const ModelFamily line_family = make_family<Line>();
//
// It may also have (docs/adding-a-family.md): loss, tokens, check, check_sample, shrink.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/schema.h"
#include "nn/net.h"

namespace lathe {

struct ModelInputs {            // What the data add to the parameters of a family.
  int64_t classes = 10;         // outputs for each sample, token or pixel
  bool pixels = false;          // outputs are wanted for each pixel: masks and images
  Doubles mean{0.0}, std{1.0};  // of the input's channels, after division by 255
};

struct ModelSpec {                                                     // The section [model] of a recipe.
  std::string family = "mlp";                                          // a row of the table
  ParamSet params;                                                     // of that family
  ModelSpec() : ModelSpec("mlp") {}                                    // with its defaults
  explicit ModelSpec(std::string_view name, const NamedValues& = {});  // UserError: no such family or parameter
  friend bool operator==(const ModelSpec&, const ModelSpec&) = default;
};

struct ModelConfig : ModelSpec, ModelInputs {  // All that a net is built from.
  ModelConfig() = default;                     // an mlp
  explicit ModelConfig(std::string_view name, const NamedValues& values = {}, ModelInputs in = {})  // see ModelSpec
      : ModelSpec(name, values), ModelInputs(std::move(in)) {}
  ModelConfig(ModelSpec spec, ModelInputs in) : ModelSpec(std::move(spec)), ModelInputs(std::move(in)) {}  // both
};

struct TokenInput {         // What a net for tokens takes.
  int64_t vocab = 256;      // number of tokens
  int64_t positions = 128;  // of the longest sample
  bool label_each = true;   // each token has a label: the next one; false: each sample has one
};

enum class NetOutput {  // What a family gives.
  sample,               // numbers for each sample or token
  pixel,                // numbers for each pixel
  any,                  // either, as ModelInputs::pixels says
};

struct FamilyInfo {                      // What is fixed about a family.
  std::string_view name;                 // model.family in recipes
  std::string_view doc{};                // one line
  std::string_view weights{};            // whose names the weights have in files
  std::string_view published{};          // numbers of parameters that families_test.cpp compares
  NetOutput output = NetOutput::sample;  // which targets it is for
  int64_t test_side = 8;                 // of the images that tests use: a net that halves them often needs more
};

struct ModelFamily {                                // A kind of network: a row of the table.
  FamilyInfo info;                                  // name, doc
  const Schema& (*schema)() = schema_of<NoFields>;  // of its parameters: recipe keys model.*
  // images: x is f32 [B, H, W, C], normalised; tokens: x is i32 [B, T]. Returns logits: [rows, classes]; rows are
  // samples, tokens or, with `pixels`, pixels.
  Value (*build)(Net&, const ModelConfig&, Value x) = nullptr;
  // A loss of its own, where train.loss is "auto"; null: that of the target. y is what build returned; labels: classes
  // i32 [rows], or numbers f32 as y. One loss or more for each row; their sum is divided by the number of targets.
  Value (*loss)(Net&, const ModelConfig&, Value y, Value labels) = nullptr;
  std::optional<TokenInput> (*tokens)(const ParamSet&) = nullptr;  // null, or nothing: it takes images
  void (*check)(const ParamSet&, RuleReport&) = nullptr;           // of parameters that must fit each other
  // Of parameters that must fit the samples: u8 or f32 [H, W, C], or i32 [T].
  void (*check_sample)(const ModelConfig&, const TensorType& sample, RuleReport&) = nullptr;
  // The parameters made small for tests; the first that fits is taken. Images are `image` large, which it may change.
  std::vector<ParamSet> (*shrink)(const ParamSet&, Ints& image) = nullptr;

  std::string_view name() const { return info.name; }  // of the family
};

template <class T>
constexpr ModelFamily make_family() {  // the row of a struct of static functions (top of the file)
  using P = typename T::Params;
  ModelFamily f{.info = T::info, .schema = schema_of<P>};
  f.build = [](Net& net, const ModelConfig& c, Value x) { return T::build(net, c.params.as<P>(), c, x); };
  if constexpr (requires { &T::loss; })
    f.loss = [](Net& net, const ModelConfig& c, Value y, Value labels) {
      return T::loss(net, c.params.as<P>(), c, y, labels);
    };
  if constexpr (requires { &T::tokens; })
    f.tokens = [](const ParamSet& p) -> std::optional<TokenInput> { return T::tokens(p.as<P>()); };
  if constexpr (requires { &T::check; })
    f.check = [](const ParamSet& p, RuleReport& report) { T::check(p.as<P>(), report); };
  if constexpr (requires { &T::check_sample; })
    f.check_sample = [](const ModelConfig& c, const TensorType& sample, RuleReport& report) {
      T::check_sample(c.params.as<P>(), c, sample, report);
    };
  if constexpr (requires { &T::shrink; })
    f.shrink = [](const ParamSet& p, Ints& image) {
      std::vector<ParamSet> out;
      for (P& small : T::shrink(p.as<P>(), image)) out.push_back(ParamSet(std::move(small)));
      return out;
    };
  return f;
}

std::span<const ModelFamily> model_families();              // the table, then custom families
const ModelFamily* find_family_row(std::string_view name);  // or null
const ModelFamily& find_family(std::string_view name);      // UserError listing the known ones
// Adds a custom family under a name that is not taken (UserError): from then on recipes may name it, and the fields of
// its parameters are keys of [model]. Names and texts must live as long as the program. Before the first recipe is
// read; not for several threads at once.
void register_family(const ModelFamily&);
bool is_custom_family(std::string_view name);             // by register_family
std::optional<TokenInput> token_input(const ModelSpec&);  // nothing: it takes images
std::string family_reference();                           // all families as Markdown

// For `shrink`: no more than a limit.
inline int64_t at_most(int64_t value, int64_t limit) { return value < limit ? value : limit; }
Ints at_most(Ints values, size_t items, int64_t limit);  // in number and size

}  // namespace lathe
