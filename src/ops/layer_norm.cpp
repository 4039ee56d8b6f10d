#include "ops/layer_norm.h"

#include <algorithm>
#include <cmath>

#include "ops/broadcast.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

Shape rows_of(const Shape& x) { return Shape(x.dims().first(static_cast<size_t>(x.ndim() - 1))); }
Shape column_of(const Shape& x) { return x.with_dim(-1, 1); }

Ints leading_axes(const Shape& x) {
  Ints axes;
  for (int i = 0; i < x.ndim() - 1; ++i) axes.push_back(i);
  return axes;
}

void check(const char* op, const TensorType& x, std::span<const TensorType> channels) {
  LATHE_USER_CHECK(is_float(x.dtype) && x.shape.ndim() >= 1 && x.shape.dim(-1) >= 1,
                   "{}: expected floats with a last axis that is not empty, got {}", op, to_string(x));
  for (const TensorType& t : channels)
    LATHE_USER_CHECK(t == (TensorType{x.dtype, {x.shape.dim(-1)}}), "{}: expected {}[{}] for the channels of x, got {}",
                     op, to_string(x.dtype), x.shape.dim(-1), to_string(t));
}

struct LayerNorm {
  using Params = LayerNormParams;
  static constexpr OpInfo info{
      .name = "layer_norm", .doc = "normalises the last axis; also gives its mean and 1 / deviation", .inputs = 3};

  static Types infer(ArgTypes x, const Params& p) {
    check("layer_norm", x[0], x.subspan(1));
    LATHE_USER_CHECK(p.eps >= 0 && std::isfinite(p.eps), "layer_norm: eps {} is not a small positive number", p.eps);
    const TensorType rows{x[0].dtype, rows_of(x[0].shape)};
    return {x[0], rows, rows};
  }

  static Values expand(Builder&, ArgValues in, const Params& p) {
    const Value x = in[0];
    const Value mean = reduce_mean(x, {-1}, true);
    const Value centered = x - mean;
    const Value rstd = rsqrt(reduce_mean(square(centered), {-1}, true) + p.eps);
    const Shape rows = rows_of(x.shape());
    return {centered * rstd * in[1] + in[2], reshape(mean, rows), reshape(rstd, rows)};
  }

  // mean and rstd receive cotangents only when a derivative that reads them is differentiated again.
  static Values vjp(const Vjp& v, const Params&) {
    const Value x = v.x[0];
    Value dx, dgamma, dbeta;
    if (v.has_dy(0)) {
      const Value in[] = {v.dy(), x, v.x[1], v.y[1], v.y[2]};
      const Values d = v.b.add(layer_norm_grad_op, in, make_params(NoParams{}));
      dx = d[0];
      dgamma = d[1];
      dbeta = d[2];
    }
    const double share = 1.0 / static_cast<double>(x.dim(-1));
    const Shape column = column_of(x.shape());
    const auto add_to_dx = [&](Value d) { dx = dx ? dx + d : d; };
    if (v.has_dy(1)) add_to_dx(broadcast_to(reshape(v.dy(1) * share, column), x.shape()));
    if (v.has_dy(2)) {
      const Value slope = v.dy(2) * v.y[2] * v.y[2] * v.y[2] * -share;
      add_to_dx((x - reshape(v.y[1], column)) * reshape(slope, column));
    }
    return {dx, dgamma, dbeta};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int64_t n = x[0].shape().dim(-1);
    for (int64_t r = 0; r < y[1].numel(); ++r) {
      const double* row = x[0].data + r * n;
      double mean = 0, variance = 0;
      for (int64_t i = 0; i < n; ++i) mean += row[i] / static_cast<double>(n);
      for (int64_t i = 0; i < n; ++i) variance += (row[i] - mean) * (row[i] - mean) / static_cast<double>(n);
      y[1][r] = mean;
      y[2][r] = 1 / std::sqrt(variance + p.eps);
      for (int64_t i = 0; i < n; ++i) y[0][r * n + i] = (row[i] - mean) * y[2][r] * x[1][i] + x[2][i];
    }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape x, double eps) {
      const TensorType c{DType::f32, {x.dim(-1)}};
      return Sample{label, {{{DType::f32, x}, -2, 2}, {c, 0.5, 1.5}, {c}}, make_params(Params{eps})};
    };
    return {s("tokens", {2, 3, 16}, 1e-5), s("matrix", {5, 33}, 1e-5), s("vector", {9}, 1e-3),
            s("long", {2, 1025}, 1e-5), s("no_rows", {0, 4}, 1e-5)};
  }
};

struct LayerNormGrad {
  using Params = NoParams;
  static constexpr OpInfo info{
      .name = "layer_norm_grad", .doc = "derivatives of layer_norm by x, gamma and beta", .inputs = 5};

  static Types infer(ArgTypes x, const Params&) {
    check("layer_norm_grad", x[1], x.subspan(2, 1));
    const TensorType rows{x[1].dtype, rows_of(x[1].shape)};
    LATHE_USER_CHECK(x[0] == x[1] && x[3] == rows && x[4] == rows,
                     "layer_norm_grad: dy {}, mean {} and rstd {} do not fit x {}", to_string(x[0]), to_string(x[3]),
                     to_string(x[4]), to_string(x[1]));
    return {x[1], x[2], x[2]};
  }

  static Values expand(Builder&, ArgValues in, const Params&) {
    const Value dy = in[0], x = in[1];
    const Shape column = column_of(x.shape());
    const Value rstd = reshape(in[4], column);
    const Value normal = (x - reshape(in[3], column)) * rstd;
    const Value g = dy * in[2];
    const Value dx = (g - reduce_mean(g, {-1}, true) - normal * reduce_mean(g * normal, {-1}, true)) * rstd;
    const Ints axes = leading_axes(x.shape());
    return {dx, reduce_sum(dy * normal, axes), reduce_sum(dy, axes)};
  }

  static void reference(RefOuts out, RefIns in, const Params&) {
    const RefTensor &dy = in[0], &x = in[1], &gamma = in[2], &mean = in[3], &rstd = in[4];
    const int64_t n = x.shape().dim(-1);
    std::fill_n(out[1].data, n, 0.0);
    std::fill_n(out[2].data, n, 0.0);
    for (int64_t r = 0; r < mean.numel(); ++r) {
      double sum = 0, dot = 0;
      for (int64_t i = 0, at = r * n; i < n; ++i, ++at) {
        const double normal = (x[at] - mean[r]) * rstd[r];
        sum += dy[at] * gamma[i];
        dot += dy[at] * gamma[i] * normal;
        out[1][i] += dy[at] * normal;
        out[2][i] += dy[at];
      }
      for (int64_t i = 0, at = r * n; i < n; ++i, ++at) {
        const double normal = (x[at] - mean[r]) * rstd[r];
        out[0][at] = (dy[at] * gamma[i] - (sum + normal * dot) / static_cast<double>(n)) * rstd[r];
      }
    }
  }

  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const Sample& s : LayerNorm::samples()) {
      const TensorType x = s.inputs[0].type, rows{x.dtype, rows_of(x.shape)};
      out.push_back({s.label, {{x}, {x, -2, 2}, s.inputs[1], {rows}, {rows, 0.5, 2}}, make_params(NoParams{})});
    }
    return out;
  }
};

}  // namespace

constinit const OpDef layer_norm_op = make_op<LayerNorm>();
constinit const OpDef layer_norm_grad_op = make_op<LayerNormGrad>();

Value layer_norm(Value x, Value gamma, Value beta, double eps) {
  const Value in[] = {x, gamma, beta};
  return x.builder().add1(layer_norm_op, in, LayerNormParams{eps});
}

}  // namespace lathe
