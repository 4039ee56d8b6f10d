#include "nn/families/model.h"
#include "nn/layers.h"

namespace lathe {

Value build_mlp(Net& net, const ModelConfig& c, Value x) {
  int i = 1;
  const auto dense = [&](Value y, int64_t out) {
    const std::string name = fmt::format("fc{}", i++);
    return y.ndim() == 4 ? linear_of_image(net, name, y, out) : linear(net, name, y, out);
  };
  Value y = x;
  for (int64_t width : c.hidden) y = dropout(net, activation(c.activation, dense(y, width)), c.dropout);
  return dense(y, c.classes);
}

}  // namespace lathe
