#include "nn/families/model.h"
#include "nn/layers.h"

namespace lathe {

// Per entry of `channels`: 3x3 convolution, 2x2 max pooling, batch norm, activation. Pooling comes first because it is
// the same for a rising activation, and the norm and the activation then touch a quarter of the elements. Then a dense
// layer (dense > 0) and the head.
Value build_cnn(Net& net, const ModelConfig& c, Value x) {
  int i = 1;
  for (int64_t channels : c.channels) {
    x = max_pool2d(conv2d(net, fmt::format("conv{}", i), x, channels, {.bias = !c.batch_norm}), 2, 2);
    if (c.batch_norm) x = batch_norm(net, fmt::format("bn{}", i), x);
    x = activation(c.activation, x);
    ++i;
  }
  if (c.dense == 0) return linear_of_image(net, "fc1", dropout(net, x, c.dropout), c.classes);
  const Value y = dropout(net, activation(c.activation, linear_of_image(net, "fc1", x, c.dense)), c.dropout);
  return linear(net, "fc2", y, c.classes);
}

}  // namespace lathe
