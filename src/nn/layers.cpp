#include "nn/layers.h"

#include <algorithm>
#include <cmath>

#include "ops/attention.h"
#include "ops/batch_norm.h"
#include "ops/conv1d.h"
#include "ops/conv2d.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/elu.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/group_norm.h"
#include "ops/grouped_attention.h"
#include "ops/layer_norm.h"
#include "ops/leaky_relu.h"
#include "ops/lstm_cell.h"
#include "ops/matmul.h"
#include "ops/max_pool.h"
#include "ops/reshape.h"
#include "ops/rotary.h"
#include "ops/slice.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

Init fan_in_uniform(int64_t fan_in) { return Init::uniform(1.0 / std::sqrt(static_cast<double>(fan_in))); }

Shape replace_last(const Shape& s, int64_t last) { return s.with_dim(-1, last); }

// `prefix` comes before "bias".
Value affine(Net& net, const std::string& prefix, Value x, Value w, bool bias) {
  const int64_t in = w.dim(1), out = w.dim(0);
  Value y = matmul(reshape(x, {x.shape().numel() / in, in}), w, false, true);
  if (bias) y = y + net.param(prefix + "bias", {out}, fan_in_uniform(in));
  return reshape(y, replace_last(x.shape(), out));
}

void check_groups(const std::string& name, Value x, int64_t out, int64_t groups) {
  LATHE_USER_CHECK(groups > 0 && x.dim(-1) % groups == 0 && out % groups == 0,
                   "{}: {} input and {} output channels do not divide into {} groups", name, x.dim(-1), out, groups);
}

Value projection(Net& net, const std::string& prefix, Value x, int64_t out, bool bias) {
  Origin origin(net.builder(), prefix.substr(0, prefix.size() - 1));
  const int64_t in = x.dim(-1);
  return affine(net, prefix, x, net.param(prefix + "weight", {out, in}, fan_in_uniform(in)), bias);
}

}  // namespace

Value linear(Net& net, const std::string& name, Value x, int64_t out, bool bias) {
  return projection(net, name + ".", x, out, bias);
}

Value linear_of_image(Net& net, const std::string& name, Value x, int64_t out, bool bias) {
  Origin origin(net.builder(), name);
  const int64_t h = x.dim(1), w = x.dim(2), c = x.dim(3), in = h * w * c;
  const FileLayout file{{out, h, w, c}, {0, 3, 1, 2}, {out, in}};
  const Value weight = net.param(name + ".weight", {out, in}, fan_in_uniform(in), file);
  return affine(net, name + ".", reshape(x, {x.dim(0), in}), weight, bias);
}

Value conv2d(Net& net, const std::string& name, Value x, int64_t out, const ConvOptions& o) {
  Origin origin(net.builder(), name);
  check_groups(name, x, out, o.groups);
  const int64_t in = x.dim(3) / o.groups, fan_in = in * o.kernel * o.kernel;
  const FileLayout file{{out, o.kernel, o.kernel, in}, {0, 3, 1, 2}, {out, in, o.kernel, o.kernel}};
  const double fan_out = static_cast<double>(out * o.kernel * o.kernel);
  const Init init = o.he ? Init::normal(std::sqrt(2 / fan_out)) : fan_in_uniform(fan_in);
  const Value w = net.param(name + ".weight", {out, o.kernel, o.kernel, in}, init, file);
  Conv2dParams p;
  p.stride_h = p.stride_w = o.stride;
  const int64_t reach = window_reach(o.kernel, o.dilation);
  const AxisPad pad_h = axis_pad(x.dim(1), reach, o.stride, o.padding);
  const AxisPad pad_w = axis_pad(x.dim(2), reach, o.stride, o.padding);
  p.pad_top = pad_h.before, p.pad_bottom = pad_h.after, p.pad_left = pad_w.before, p.pad_right = pad_w.after;
  p.dilation_h = p.dilation_w = o.dilation;
  p.groups = o.groups;
  Value y = conv2d(x, w, p);
  if (o.bias) y = y + net.param(name + ".bias", {out}, fan_in_uniform(fan_in));
  return y;
}

Value conv1d(Net& net, const std::string& name, Value x, int64_t out, const ConvOptions& o, bool causal) {
  Origin origin(net.builder(), name);
  check_groups(name, x, out, o.groups);
  const int64_t in = x.dim(2) / o.groups, fan_in = in * o.kernel, reach = window_reach(o.kernel, o.dilation);
  const FileLayout file{{out, o.kernel, in}, {0, 2, 1}, {out, in, o.kernel}};
  const Value w = net.param(name + ".weight", {out, o.kernel, in}, fan_in_uniform(fan_in), file);
  const AxisPad pad = causal ? AxisPad{reach - 1, 0} : axis_pad(x.dim(1), reach, o.stride, o.padding);
  const Value y = conv1d(x, w, {o.stride, pad.before, pad.after, o.dilation, o.groups});
  return o.bias ? y + net.param(name + ".bias", {out}, fan_in_uniform(fan_in)) : y;
}

Value conv_transpose2d(Net& net, const std::string& name, Value x, int64_t out, const ConvTransposeOptions& o) {
  Origin origin(net.builder(), name);
  check_groups(name, x, out, o.groups);
  const int64_t in = x.dim(3), each = out / o.groups, k = o.kernel;
  const Init init = fan_in_uniform(each * k * k);
  const Value w =
      net.param(name + ".weight", {in, k, k, each}, init, {{in, k, k, each}, {0, 3, 1, 2}, {in, each, k, k}});
  ConvTransposeParams p;
  p.stride = {o.stride, o.stride}, p.pad = {o.padding, o.padding}, p.extra = {o.extra, o.extra};
  p.groups = o.groups;
  const Value y = conv_transpose2d(x, w, p);
  return o.bias ? y + net.param(name + ".bias", {out}, init) : y;
}

Value max_pool2d(Value x, int64_t kernel, int64_t stride, int64_t padding) {
  PoolParams p;
  p.kernel_h = p.kernel_w = kernel;
  p.stride_h = p.stride_w = stride;
  p.pad_top = p.pad_bottom = p.pad_left = p.pad_right = padding;
  return max_pool(x, p);
}

Value batch_norm(Net& net, const std::string& name, Value x, double scale_init) {
  Origin origin(net.builder(), name);
  constexpr double kEps = 1e-5, kMomentum = 0.1;
  const int64_t c = x.dim(-1);
  const Value gamma = net.param(name + ".weight", {c}, Init::constant(scale_init));
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

Value layer_norm(Net& net, const std::string& name, Value x, double eps) {
  Origin origin(net.builder(), name);
  const int64_t c = x.dim(-1);
  const Value gamma = net.param(name + ".weight", {c}, Init::constant(1));
  const Value beta = net.param(name + ".bias", {c}, Init::constant(0));
  return layer_norm(x, gamma, beta, eps);
}

Value rms_norm(Net& net, const std::string& name, Value x) {
  Origin origin(net.builder(), name);
  return rms_norm(x, net.param(name + ".weight", {x.dim(-1)}, Init::constant(1)));
}

Value group_norm(Net& net, const std::string& name, Value x, int64_t groups, double eps) {
  Origin origin(net.builder(), name);
  const int64_t c = x.dim(-1);
  const Value gamma = net.param(name + ".weight", {c}, Init::constant(1));
  return group_norm(x, gamma, net.param(name + ".bias", {c}, Init::constant(0)), groups, eps);
}

Value instance_norm(Net& net, const std::string& name, Value x, double eps) {
  Origin origin(net.builder(), name);
  const int64_t c = x.dim(-1);
  const Value gamma = net.param(name + ".weight", {c}, Init::constant(1));
  return instance_norm(x, gamma, net.param(name + ".bias", {c}, Init::constant(0)), eps);
}

Value prelu(Net& net, const std::string& name, Value x) {
  Origin origin(net.builder(), name);
  return prelu(x, net.param(name + ".weight", {x.dim(-1)}, Init::constant(0.25)));
}

AxisPad axis_pad(int64_t n, int64_t reach, int64_t stride, int64_t padding) {
  if (padding >= 0) return {padding, padding};
  const int64_t out = (n + stride - 1) / stride, total = std::max<int64_t>(0, (out - 1) * stride + reach - n);
  return {total / 2, total - total / 2};
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

Value self_attention(Net& net, const std::string& name, Value x, const AttentionOptions& o) {
  Origin origin(net.builder(), name);
  const int64_t b = x.dim(0), t = x.dim(1), c = x.dim(2), heads = o.heads, d = c / heads;
  const int64_t pairs = o.kv_heads > 0 ? o.kv_heads : heads;
  LATHE_USER_CHECK(c % heads == 0 && heads % pairs == 0,
                   "{}: a width of {} does not divide into {} heads, or these not by {} heads of keys", name, c, heads,
                   pairs);
  const Value qkv = projection(net, name + o.in, x, c + 2 * pairs * d, o.bias);
  Value q, k, v;
  if (pairs == heads) {
    // [B, T, 3, H, D] -> [3, B, H, T, D]
    const Value split = transpose(reshape(qkv, {b, t, 3, heads, d}), {2, 0, 3, 1, 4});
    const auto part = [&](int64_t i) {
      return reshape(slice(split, {i, 0, 0, 0, 0}, {1, b, heads, t, d}), {b, heads, t, d});
    };
    q = part(0), k = part(1), v = part(2);
  } else {
    // [B, T, H + 2 K, D] -> [B, H + 2 K, T, D]
    const Value split = transpose(reshape(qkv, {b, t, heads + 2 * pairs, d}), {0, 2, 1, 3});
    q = slice_axis(split, 1, 0, heads);
    k = slice_axis(split, 1, heads, pairs);
    v = slice_axis(split, 1, heads + pairs, pairs);
  }
  if (o.rotary_base > 0) {
    const Value positions = iota(net.builder(), {DType::i32, {t}}, 0);
    q = rotary(q, positions, o.rotary_base);
    k = rotary(k, positions, o.rotary_base);
  }
  const double scale = 1.0 / std::sqrt(static_cast<double>(d));
  const Value y = pairs == heads ? attention(q, k, v, o.causal, scale) : grouped_attention(q, k, v, o.causal, scale);
  const Value joined = reshape(transpose(y, {0, 2, 1, 3}), {b, t, c});
  return dropout(net, projection(net, name + o.out, joined, c, o.bias), o.dropout);
}

Values recurrent(Net& net, const std::string& name, const std::string& suffix, const Values& rows, int64_t width,
                 bool gru) {
  const Init init = Init::uniform(1 / std::sqrt(static_cast<double>(width)));
  const auto param = [&](const char* what, Shape shape) {
    return net.param(fmt::format("{}.{}{}", name, what, suffix), shape, init);
  };
  const int64_t gates = (gru ? 3 : 4) * width;
  const Value w_x = param("weight_ih", {gates, rows[0].dim(1)}), w_h = param("weight_hh", {gates, width});
  const Value b_x = param(gru ? "bias_ih" : "bias", {gates}), b_h = gru ? param("bias_hh", {gates}) : Value();
  const Value zero = zeros(net.builder(), {DType::f32, {rows[0].dim(0), width}});
  LstmState state{zero, zero};
  Values out;
  for (const Value& v : rows) {
    if (gru)
      state.h = gru_cell(v, state.h, w_x, w_h, b_x, b_h);
    else
      state = lstm_cell(v, state, w_x, w_h, b_x);
    out.push_back(state.h);
  }
  return out;
}

Value activation(const std::string& name, Value x) {
  if (name == "elu") return elu(x);
  return name == "leaky_relu" ? leaky_relu(x) : unary(name, x);
}

}  // namespace lathe
