// Types of layers: what [[model.layers]] of a recipe may have. A type is a struct of static functions in the file of
// its theme (conv_layers.cpp, norm_layers.cpp, ...) and a row at the end of that file: keys, checks, printing and the
// reference are derived from the fields of its parameters.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/schema.h"
#include "nn/layers.h"

namespace lathe {

// A layer that does not fit: its index in the list, and what() without it.
class LayerError : public UserError {
 public:
  // See the class.
  LayerError(size_t layer, const std::string& message) : UserError(message, Exit::bad_recipe), index(layer) {}
  size_t index;  // in the list
};

struct LayerParams {                                  // What every layer has.
  std::string name, input, add, activation = "none";  // see the fields
  template <class F>
  static void fields(F&& f) {
    constexpr std::string_view kName = "the name of a layer: letters, digits, '_', '-'";
    f("name", &LayerParams::name, allow::text(is_layer_name, kName),
      "by which other layers refer to it, and of its weights; without one: type and index");
    f("input", &LayerParams::input, allow::text(is_layer_name, kName),
      "the layer whose output it reads; without one: the layer before it");
    f("add", &LayerParams::add, allow::text(is_layer_name, kName),
      "the layer whose output is added to its own, before the activation");
    f("activation", &LayerParams::activation, allow::one_of(activations(true)), "applied to its output");
  }
  static bool is_layer_name(std::string_view);                       // whether a layer may have it
  static std::vector<std::string_view> activations(bool with_none);  // names of functions
};

// A layer while it is built: the net, and what the layer may ask of the list around it.
class LayerContext {
 public:
  Net& net;          // that it is part of
  int64_t classes;   // outputs that are wanted
  bool text;         // the samples are tokens, each of which predicts the next one
  std::string type;  // of the layer
  std::string name;  // of the layer: prefix of its weights

  // Of a list that gives so many outputs.
  LayerContext(Net& n, int64_t outputs, bool tokens) : net(n), classes(outputs), text(tokens) {}
  // LayerError of the layer at hand.
  [[noreturn]] void fail(const std::string& message) const { throw LayerError(at_, message); }
  Value output_of(const char* key, const std::string& layer) const;  // of an earlier layer
  void want(bool ok, const char* what) const;                        // of its input
  // Its input is an image.
  void want_image() const { want(x_.ndim() == 4, "an image [N, height, width, channels]"); }
  // Its input is a sequence.
  void want_sequence() const { want(x_.ndim() == 3, "a sequence [N, positions, width]"); }
  int64_t width_of(int64_t out) const { return out > 0 ? out : classes; }  // 0: as many as are wanted
  bool causal(bool given) const;  // it must be given where a token would see what it predicts

  Value build(const Tables& layers, Value x);   // all of them
  void set_last(size_t index) { at_ = index; }  // of which fail() speaks

 private:
  Value layer(const ParamSet&, Value before);

  size_t at_ = 0;
  Value x_;  // the input of the layer
  std::map<std::string, Value> outputs_;
};

struct LayerType {                                          // A kind of layer.
  TableType table;                                          // name, doc, keys
  Value (*build)(LayerContext&, const ParamSet&, Value x);  // without `add` and `activation`
  bool takes_tokens = false;                                // its input are tokens: it begins a list for text
};

template <class T>
LayerType make_layer() {  // of a struct with Params, name, doc and build()
  using P = typename T::Params;
  LayerType out{{T::name, T::doc, schema_of<P>},
                [](LayerContext& c, const ParamSet& p, Value x) { return T::build(c, p.as<P>(), x); }};
  if constexpr (requires { T::takes_tokens; }) out.takes_tokens = T::takes_tokens;
  return out;
}

using LayerTypes = std::vector<LayerType>;  // of one theme
LayerTypes conv_layers();                   // conv, conv1d, conv_transpose
LayerTypes plain_layers();                  // dense, dropout, flatten, activation, prelu, concat
LayerTypes norm_layers();                   // batch_norm, layer_norm, ...
LayerTypes image_layers();                  // pooling and other sizes
LayerTypes sequence_layers();               // embeddings, recurrence, attention

std::span<const LayerType> layer_types();                                    // all
std::span<const TableType> layer_tables();                                   // the same as schemas
const LayerType& type_of_layer(const ParamSet& layer);                       // InternalError: of no type
ParamSet make_layer_params(std::string_view type, const NamedValues& = {});  // UserError: no such type or key
bool takes_tokens(const Tables& layers);                                     // the first is an embedding
std::string shape_text(const Shape&);  // as a reader of a recipe knows them: the batch is N
std::string layer_reference();         // all types and keys as Markdown

}  // namespace lathe
