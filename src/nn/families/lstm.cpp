// A stack of LSTM or GRU layers that reads an image row by row; the class is read from the last state.
#include "nn/families/model.h"
#include "nn/layers.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {

// The graph has no loops: one cell per row and layer. Names follow PyTorch's, with one bias where it adds two.
Value build_lstm(Net& net, const ModelConfig& c, Value x) {
  const int64_t b = x.dim(0), steps = x.dim(1), d = c.width;
  x = reshape(x, {b, steps, x.dim(2) * x.dim(3)});
  Values sequence;
  for (int64_t t = 0; t < steps; ++t) sequence.push_back(reshape(slice_axis(x, 1, t, 1), {b, x.dim(2)}));
  const bool gru = c.cell == "gru";
  const std::string name = gru ? "gru" : "lstm";
  for (int64_t i = 0; i < c.layers; ++i) {
    Origin origin(net.builder(), fmt::format("{}.{}", name, i));
    sequence = recurrent(net, name, fmt::format("_l{}", i), sequence, d, gru);
    if (i + 1 < c.layers)
      for (Value& v : sequence) v = dropout(net, v, c.dropout);
  }
  return linear(net, "fc", dropout(net, sequence.back(), c.dropout), c.classes);
}

}  // namespace lathe
