#include "nn/layers.h"

#include <cmath>

#include "ops/attention.h"
#include "ops/batch_norm.h"
#include "ops/conv2d.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/gather.h"
#include "ops/layer_norm.h"
#include "ops/matmul.h"
#include "ops/max_pool.h"
#include "ops/reshape.h"
#include "ops/slice.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

Init fan_in_uniform(int64_t fan_in) { return Init::uniform(1.0 / std::sqrt(static_cast<double>(fan_in))); }

Shape replace_last(const Shape& s, int64_t last) { return s.with_dim(-1, last); }

Value affine(Net& net, const std::string& name, Value x, Value w, bool bias) {
  const int64_t in = w.dim(1), out = w.dim(0);
  Value y = matmul(reshape(x, {x.shape().numel() / in, in}), w, false, true);
  if (bias) y = y + net.param(name + ".bias", {out}, fan_in_uniform(in));
  return reshape(y, replace_last(x.shape(), out));
}

}  // namespace

Value linear(Net& net, const std::string& name, Value x, int64_t out, bool bias) {
  Origin origin(net.builder(), name);
  const int64_t in = x.dim(-1);
  return affine(net, name, x, net.param(name + ".weight", {out, in}, fan_in_uniform(in)), bias);
}

Value linear_of_image(Net& net, const std::string& name, Value x, int64_t out) {
  Origin origin(net.builder(), name);
  const int64_t h = x.dim(1), w = x.dim(2), c = x.dim(3), in = h * w * c;
  const FileLayout file{{out, h, w, c}, {0, 3, 1, 2}, {out, in}};
  const Value weight = net.param(name + ".weight", {out, in}, fan_in_uniform(in), file);
  return affine(net, name, reshape(x, {x.dim(0), in}), weight, true);
}

Value conv2d(Net& net, const std::string& name, Value x, int64_t out, const ConvOptions& o) {
  Origin origin(net.builder(), name);
  LATHE_USER_CHECK(o.groups > 0 && x.dim(3) % o.groups == 0 && out % o.groups == 0,
                   "{}: {} input and {} output channels do not divide into {} groups", name, x.dim(3), out, o.groups);
  const int64_t in = x.dim(3) / o.groups, fan_in = in * o.kernel * o.kernel;
  const FileLayout file{{out, o.kernel, o.kernel, in}, {0, 3, 1, 2}, {out, in, o.kernel, o.kernel}};
  const Value w = net.param(name + ".weight", {out, o.kernel, o.kernel, in}, fan_in_uniform(fan_in), file);
  Conv2dParams p;
  p.stride_h = p.stride_w = o.stride;
  p.pad_top = p.pad_bottom = p.pad_left = p.pad_right = o.padding;
  p.dilation_h = p.dilation_w = o.dilation;
  p.groups = o.groups;
  Value y = conv2d(x, w, p);
  if (o.bias) y = y + net.param(name + ".bias", {out}, fan_in_uniform(fan_in));
  return y;
}

Value max_pool2d(Value x, int64_t kernel, int64_t stride) {
  PoolParams p;
  p.kernel_h = p.kernel_w = kernel;
  p.stride_h = p.stride_w = stride;
  return max_pool(x, p);
}

Value batch_norm(Net& net, const std::string& name, Value x) {
  Origin origin(net.builder(), name);
  constexpr double kEps = 1e-5, kMomentum = 0.1;
  const int64_t c = x.dim(-1);
  const Value gamma = net.param(name + ".weight", {c}, Init::constant(1));
  const Value beta = net.param(name + ".bias", {c}, Init::constant(0));
  const Value mean = net.buffer(name + ".running_mean", {c}, Init::constant(0));
  const Value var = net.buffer(name + ".running_var", {c}, Init::constant(1));
  if (!net.training()) {
    const Value scale = gamma * rsqrt(var + kEps);
    return x * scale + (beta - mean * scale);
  }
  const BatchNormResult y = batch_norm(x, gamma, beta, kEps);
  const double count = static_cast<double>(x.shape().numel() / c);
  const double unbiased = count > 1 ? count / (count - 1) : 1;
  net.update_buffer(mean, mean * (1 - kMomentum) + y.mean * kMomentum);
  net.update_buffer(var, var * (1 - kMomentum) + y.var * (kMomentum * unbiased));
  return y.y;
}

Value layer_norm(Net& net, const std::string& name, Value x) {
  Origin origin(net.builder(), name);
  const int64_t c = x.dim(-1);
  const Value gamma = net.param(name + ".weight", {c}, Init::constant(1));
  const Value beta = net.param(name + ".bias", {c}, Init::constant(0));
  return layer_norm(x, gamma, beta, 1e-5);
}

Value dropout(Net& net, Value x, double rate) {
  if (rate <= 0 || !net.training()) return x;
  return dropout(x, net.key, net.index, rate, net.next_stream());
}

Value embedding(Net& net, const std::string& name, Value ids, int64_t count, int64_t width, Value* weight) {
  Origin origin(net.builder(), name);
  const Value table = net.param(name + ".weight", {count, width}, Init::normal(0.02));
  if (weight) *weight = table;
  return gather(table, ids);
}

Value causal_attention(Net& net, const std::string& name, Value x, int64_t heads, double dropout_rate) {
  Origin origin(net.builder(), name);
  const int64_t b = x.dim(0), t = x.dim(1), c = x.dim(2), d = c / heads;
  const Value qkv = reshape(linear(net, name + ".c_attn", x, 3 * c), {b, t, 3, heads, d});
  // [B, T, 3, H, D] -> [3, B, H, T, D]
  const Value split = transpose(qkv, {2, 0, 3, 1, 4});
  const auto part = [&](int64_t i) {
    return reshape(slice(split, {i, 0, 0, 0, 0}, {1, b, heads, t, d}), {b, heads, t, d});
  };
  const Value y = attention(part(0), part(1), part(2), true, 1.0 / std::sqrt(static_cast<double>(d)));
  const Value joined = reshape(transpose(y, {0, 2, 1, 3}), {b, t, c});
  return dropout(net, linear(net, name + ".c_proj", joined, c), dropout_rate);
}

Value activation(const std::string& name, Value x) { return unary(name, x); }

}  // namespace lathe
