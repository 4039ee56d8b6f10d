// A stack of LSTM or GRU layers that reads an image row by row; the class is read from the last state.
#include <cmath>

#include "nn/layers.h"
#include "nn/model.h"
#include "ops/full.h"
#include "ops/lstm_cell.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {

// The graph has no loops: one cell per row and layer. Names follow PyTorch's, with one bias where it adds two.
Value build_lstm(Net& net, const ModelConfig& c, Value x) {
  const int64_t b = x.dim(0), steps = x.dim(1), d = c.width;
  x = reshape(x, {b, steps, x.dim(2) * x.dim(3)});
  Values sequence;
  for (int64_t t = 0; t < steps; ++t) sequence.push_back(reshape(slice_axis(x, 1, t, 1), {b, x.dim(2)}));
  const Init init = Init::uniform(1 / std::sqrt(static_cast<double>(d)));
  const bool gru = c.cell == "gru";
  const std::string name = gru ? "gru" : "lstm";
  for (int64_t i = 0; i < c.layers; ++i) {
    Origin origin(net.builder(), fmt::format("{}.{}", name, i));
    const auto param = [&](const char* what, Shape shape) {
      return net.param(fmt::format("{}.{}_l{}", name, what, i), shape, init);
    };
    const int64_t gates = gru ? 3 : 4;
    const Value w_x = param("weight_ih", {gates * d, sequence[0].dim(1)}), w_h = param("weight_hh", {gates * d, d});
    const Value b_x = param(gru ? "bias_ih" : "bias", {gates * d});
    const Value b_h = gru ? param("bias_hh", {gates * d}) : Value();
    const Value zero = zeros(net.builder(), {DType::f32, {b, d}});
    LstmState state{zero, zero};
    for (Value& v : sequence) {
      if (gru)
        state.h = gru_cell(v, state.h, w_x, w_h, b_x, b_h);
      else
        state = lstm_cell(v, state, w_x, w_h, b_x);
      v = state.h;
    }
    if (i + 1 < c.layers)
      for (Value& v : sequence) v = dropout(net, v, c.dropout);
  }
  return linear(net, "fc", dropout(net, sequence.back(), c.dropout), c.classes);
}

}  // namespace lathe
