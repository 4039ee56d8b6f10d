// The network that a list of layers describes.
#pragma once

#include "base/error.h"
#include "nn/families/layer_spec.h"
#include "nn/families/model.h"

namespace lathe {

// A layer that does not fit: its index in the list, and what() without it.
class LayerError : public UserError {
 public:
  LayerError(size_t layer, const std::string& message) : UserError(message, Exit::bad_recipe), index(layer) {}
  size_t index;
};

// Whether the list is for tokens: its first layer is an embedding.
bool takes_tokens(const std::vector<LayerSpec>&);

// Throws LayerError where a layer's shapes or names do not fit. The list has passed check_layer.
Value build_layers(Net&, const ModelConfig&, Value x);

}  // namespace lathe
