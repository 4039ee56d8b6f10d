#include "ops/lstm_cell.h"

#include <array>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/slice.h"

namespace lathe {
namespace {

void check_cell(const char* op, ArgTypes x, int64_t gates, int states, int biases) {
  const TensorType &in = x[0], &h = x[1];
  LATHE_USER_CHECK(is_float(in.dtype) && in.shape.ndim() == 2 && h.shape.ndim() == 2 && h.dtype == in.dtype &&
                       h.shape[0] == in.shape[0],
                   "{}: expected floats x [batch, in] and h [batch, hidden], got {} and {}", op, to_string(in),
                   to_string(h));
  const int64_t hidden = h.shape[1];
  LATHE_USER_CHECK(hidden >= 1 && hidden <= (int64_t{1} << 40), "{}: {} hidden units", op, hidden);
  size_t at = 1;
  const auto expect = [&](const char* what, const Shape& shape) {
    ++at;
    LATHE_USER_CHECK(x[at] == (TensorType{in.dtype, shape}), "{}: expected {} {}, got {}", op, what, to_string(shape),
                     to_string(x[at]));
  };
  if (states == 2) expect("c", h.shape);
  expect("w_x", {gates * hidden, in.shape[1]});
  expect("w_h", {gates * hidden, hidden});
  for (int i = 0; i < biases; ++i) expect("b", {gates * hidden});
}

Value gate(Value all, int i, int64_t hidden) { return slice_axis(all, 1, i * hidden, hidden); }

// sum over k of x[row, k] w[out, k]
double dot_of(const RefTensor& x, int64_t row, const RefTensor& w, int64_t out) {
  const int64_t n = w.shape()[1];
  double sum = 0;
  for (int64_t k = 0; k < n; ++k) sum += x[row * n + k] * w[out * n + k];
  return sum;
}
double logistic(double x) { return 1 / (1 + std::exp(-x)); }

struct LstmCell {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "lstm_cell", .doc = "one step of an LSTM: h and c", .inputs = 6};

  static Types infer(ArgTypes x, const Params&) {
    check_cell("lstm_cell", x, 4, 2, 1);
    return {x[1], x[2]};
  }

  static Values expand(Builder&, ArgValues x, const Params&) {
    const int64_t hidden = x[1].dim(1);
    const Value all = matmul(x[0], x[3], false, true) + matmul(x[1], x[4], false, true) + x[5];
    const Value i = sigmoid(gate(all, 0, hidden)), f = sigmoid(gate(all, 1, hidden)), g = tanh(gate(all, 2, hidden)),
                o = sigmoid(gate(all, 3, hidden));
    const Value c = f * x[2] + i * g;
    return {o * tanh(c), c};
  }

  static void reference(RefOuts y, RefIns x, const Params&) {
    const int64_t hidden = x[1].shape()[1];
    for (int64_t at = 0; at < y[0].numel(); ++at) {
      const int64_t row = at / hidden, unit = at % hidden;
      std::array<double, 4> v;
      for (int64_t k = 0; k < 4; ++k) {
        const int64_t out = k * hidden + unit;
        v[static_cast<size_t>(k)] = dot_of(x[0], row, x[3], out) + dot_of(x[1], row, x[4], out) + x[5][out];
      }
      y[1][at] = logistic(v[1]) * x[2][at] + logistic(v[0]) * std::tanh(v[2]);
      y[0][at] = logistic(v[3]) * std::tanh(y[1][at]);
    }
  }

  static std::vector<Sample> samples() {
    const SampleInput h{{DType::f32, {2, 4}}};
    return {{"cell",
             {{{DType::f32, {2, 3}}}, h, h, {{DType::f32, {16, 3}}}, {{DType::f32, {16, 4}}}, {{DType::f32, {16}}}},
             make_params(Params{})}};
  }
};

struct GruCell {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "gru_cell", .doc = "one step of a GRU: h", .inputs = 6};

  static Types infer(ArgTypes x, const Params&) {
    check_cell("gru_cell", x, 3, 1, 2);
    return {x[1]};
  }

  static Values expand(Builder&, ArgValues x, const Params&) {
    const int64_t hidden = x[1].dim(1);
    const Value from_x = matmul(x[0], x[2], false, true) + x[4], from_h = matmul(x[1], x[3], false, true) + x[5];
    const auto both = [&](int i) { return gate(from_x, i, hidden) + gate(from_h, i, hidden); };
    const Value r = sigmoid(both(0)), z = sigmoid(both(1));
    const Value n = tanh(gate(from_x, 2, hidden) + r * gate(from_h, 2, hidden));
    return {n + z * (x[1] - n)};
  }

  static void reference(RefOuts y, RefIns x, const Params&) {
    const int64_t hidden = x[1].shape()[1];
    for (int64_t at = 0; at < y[0].numel(); ++at) {
      const int64_t row = at / hidden, unit = at % hidden;
      const auto from_x = [&](int64_t k) {
        return dot_of(x[0], row, x[2], k * hidden + unit) + x[4][k * hidden + unit];
      };
      const auto from_h = [&](int64_t k) {
        return dot_of(x[1], row, x[3], k * hidden + unit) + x[5][k * hidden + unit];
      };
      const double r = logistic(from_x(0) + from_h(0)), z = logistic(from_x(1) + from_h(1));
      y[0][at] = (1 - z) * std::tanh(from_x(2) + r * from_h(2)) + z * x[1][at];
    }
  }

  static std::vector<Sample> samples() {
    const SampleInput b{{DType::f32, {12}}};
    return {{"cell",
             {{{DType::f32, {2, 3}}}, {{DType::f32, {2, 4}}}, {{DType::f32, {12, 3}}}, {{DType::f32, {12, 4}}}, b, b},
             make_params(Params{})}};
  }
};

}  // namespace

constinit const OpDef gru_cell_op = make_op<GruCell>();
constinit const OpDef lstm_cell_op = make_op<LstmCell>();

LstmState lstm_cell(Value x, LstmState state, Value w_x, Value w_h, Value b) {
  const Value in[] = {x, state.h, state.c, w_x, w_h, b};
  const Values out = x.builder().add(lstm_cell_op, in, make_params(NoParams{}));
  return {out[0], out[1]};
}

Value gru_cell(Value x, Value h, Value w_x, Value w_h, Value b_x, Value b_h) {
  const Value in[] = {x, h, w_x, w_h, b_x, b_h};
  return x.builder().add1(gru_cell_op, in, NoParams{});
}

}  // namespace lathe
