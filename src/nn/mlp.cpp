#include "nn/layers.h"
#include "nn/model.h"
#include "ops/reshape.h"

namespace lathe {

Value build_mlp(Net& net, const ModelConfig& c, Value x) {
  Value y = reshape(x, {x.dim(0), x.shape().numel() / x.dim(0)});
  int i = 1;
  for (int64_t width : c.hidden) {
    y = activation(c.activation, linear(net, fmt::format("fc{}", i++), y, width));
    y = dropout(net, y, c.dropout);
  }
  return linear(net, fmt::format("fc{}", i), y, c.classes);
}

}  // namespace lathe
