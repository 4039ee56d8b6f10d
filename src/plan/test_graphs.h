// Graphs for tests of the plan and of the devices: random ones, and training steps of small networks.
#pragma once

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "ir/builder.h"
#include "ops/broadcast.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/transpose.h"
#include "passes/autodiff.h"

namespace lathe::testing {

// Elementwise chains, products, reductions, views and updates of state, among them the awkward ones: state that is read
// after its new value is known, states that change places, old values as metrics, one value for two states.
inline Graph random_graph(uint32_t seed, int nodes) {
  std::mt19937 rng(seed);
  const auto below = [&](size_t n) { return static_cast<size_t>(rng() % n); };
  Builder b("random" + std::to_string(seed));
  const Shape shapes[] = {{8, 8}, {4, 16}, {16, 4}, {64}, {8, 1}, {1, 8}, {}};
  std::vector<Value> values, state;
  for (int i = 0; i < 6; ++i) {
    const Shape& s = shapes[below(std::size(shapes))];
    values.push_back(b.input({DType::f32, s}, InputKind::batch, "x" + std::to_string(i)));
  }
  for (int i = 0; i < 4; ++i) {
    const InputKind kinds[] = {InputKind::param, InputKind::buffer, InputKind::optimizer, InputKind::gradient};
    state.push_back(b.input({DType::f32, {8, 8}}, kinds[i], "s" + std::to_string(i)));
    values.push_back(state.back());
  }
  values.push_back(b.input({DType::f32, {8, 8}}, InputKind::batch, "y"));
  const auto any = [&] { return values[values.size() - 1 - std::min(below(values.size()), below(values.size()))]; };
  const auto with_shape = [&](const Shape& s) {
    for (int attempt = 0; attempt < 20; ++attempt)
      if (const Value v = any(); v.shape() == s) return v;
    for (const Value& v : values)
      if (v.shape() == s) return v;
    return Value();
  };
  for (int i = 0; i < nodes; ++i) {
    const Value x = any();
    Value y;
    switch (below(10)) {
      case 0:
      case 1: y = tanh(x); break;
      case 2:
      case 3: {
        const Value z = with_shape(x.shape());
        y = z ? x * z : neg(x);
        break;
      }
      case 4: y = sigmoid(x) * 0.5; break;
      case 5: {
        if (x.shape().numel() == 64)
          y = reshape(x, shapes[below(4)]);
        else
          y = x + 0.25;
        break;
      }
      case 6: y = x.ndim() == 2 ? transpose(x, {1, 0}) : abs(x); break;
      case 7: y = x.shape() == Shape{8, 8} ? matmul(x, with_shape({8, 8})) * 0.1 : tanh(x); break;
      case 8:
        y = x.shape() == Shape{8, 8} ? reduce_sum(x, {static_cast<int64_t>(below(2))}, true) * 0.1 : tanh(x);
        break;
      default: {
        const Value row = with_shape(below(2) ? Shape{8, 1} : Shape{1, 8});
        const Value m = with_shape({8, 8});
        y = row ? m + row : m;
        break;
      }
    }
    if (y.id() != x.id()) values.push_back(y);
  }
  switch (below(4)) {
    case 0:  // two states change places
      b.update(state[0], state[1]);
      b.update(state[1], state[0]);
      break;
    case 1: {  // one value for two states, and the old one is shown
      const Value v = with_shape({8, 8});
      if (v.id() != state[0].id() && v.id() != state[1].id()) {
        b.update(state[0], v);
        b.update(state[1], v);
        b.output(state[0], OutputKind::result, "old");
      }
      break;
    }
    case 2: {  // the new value is compared with the old one
      const Value v = tanh(state[0] * 0.5) + 0.125;
      b.update(state[0], v);
      b.output(sum_all(v - state[0]), OutputKind::metric, "change");
      break;
    }
    default: b.update(state[0], state[0] * 0.9 + with_shape({8, 8}) * 0.1); break;
  }
  b.update(state[2],
           matmul(state[2], with_shape({8, 8})) * 0.1);  // the writer reads another index, or its producer does
  {
    const Value flat = reshape(state[3], {64});
    b.update(state[3], reshape(tanh(flat) + reshape(with_shape({8, 8}), {64}), {8, 8}));
  }
  for (int i = 0; i < 3; ++i) b.output(any(), OutputKind::metric, "m" + std::to_string(i));
  b.output(values.back(), OutputKind::result, "r");
  return b.finish();
}

// Stochastic gradient descent with momentum on every parameter.
inline void momentum_updates(Builder& b, const std::vector<Value>& params, Value loss, Value lr) {
  const Values grads = grad(loss, params);
  for (size_t i = 0; i < params.size(); ++i) {
    const Value m = b.input(params[i].type(), InputKind::optimizer, "m" + std::to_string(i));
    const Value now = m * 0.9 + grads[i];
    b.update(m, now);
    b.update(params[i], params[i] - now * lr);
  }
  b.output(loss, OutputKind::metric, "loss");
}

inline Graph mlp_step(int64_t batch, const std::vector<int64_t>& widths) {
  Builder b("mlp");
  std::vector<Value> params;
  Value x = b.input({DType::f32, {batch, widths[0]}}, InputKind::batch, "x");
  const Value target = b.input({DType::f32, {batch, widths.back()}}, InputKind::batch, "y");
  const Value lr = b.input({DType::f32, {}}, InputKind::step, "lr");
  for (size_t i = 0; i + 1 < widths.size(); ++i) {
    Origin scope(b, "fc" + std::to_string(i));
    params.push_back(b.input({DType::f32, {widths[i], widths[i + 1]}}, InputKind::param, "w" + std::to_string(i)));
    params.push_back(b.input({DType::f32, {widths[i + 1]}}, InputKind::param, "b" + std::to_string(i)));
    x = matmul(x, params[2 * i]) + params[2 * i + 1];
    if (i + 2 < widths.size()) x = relu(x);
  }
  momentum_updates(b, params, sum_all(square(x - target)) * (1.0 / static_cast<double>(batch)), lr);
  return autodiff(b.finish(), {});
}

// Residual blocks of two convolutions with scale and shift, as a ResNet has them.
inline Graph conv_step(int64_t batch, int64_t size, int64_t channels, int blocks) {
  Builder b("conv");
  std::vector<Value> params;
  Value x = b.input({DType::f32, {batch, size, size, channels}}, InputKind::batch, "x");
  const Value lr = b.input({DType::f32, {}}, InputKind::step, "lr");
  const auto param = [&](const Shape& s) {
    params.push_back(b.input({DType::f32, s}, InputKind::param, "p" + std::to_string(params.size())));
    return params.back();
  };
  int64_t width = channels;
  for (int i = 0; i < blocks; ++i) {
    Origin scope(b, "block" + std::to_string(i));
    const bool down = i > 0 && i % 2 == 0;
    Conv2dParams same{.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1}, first = same;
    Value skip = x;
    if (down) {
      first.stride_h = first.stride_w = 2;
      skip = conv2d(x, param({width * 2, 1, 1, width}), Conv2dParams{.stride_h = 2, .stride_w = 2});
    }
    const int64_t out = down ? width * 2 : width;
    Value y = conv2d(x, param({out, 3, 3, width}), first);
    y = relu(y * param({out}) + param({out}));
    y = conv2d(y, param({out, 3, 3, out}), same);
    y = y * param({out}) + param({out});
    x = relu(y + skip);
    width = out;
  }
  momentum_updates(b, params, sum_all(square(reduce_mean(x, {1, 2}))) * 0.01, lr);
  return autodiff(b.finish(), {});
}

}  // namespace lathe::testing
