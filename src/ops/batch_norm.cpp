#include "ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "ops/broadcast.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

Ints leading_axes(const Shape& x) {
  Ints axes;
  for (int i = 0; i < x.ndim() - 1; ++i) axes.push_back(i);
  return axes;
}

int64_t count_of(const Shape& x) { return x.numel() / x.dim(-1); }

void check(const char* op, const TensorType& x, std::span<const TensorType> channels, const BatchNormParams& p) {
  LATHE_USER_CHECK(is_float(x.dtype) && x.shape.ndim() >= 2 && x.numel() >= 1,
                   "{}: expected at least one float of [..., channels], got {}", op, to_string(x));
  for (const TensorType& t : channels)
    LATHE_USER_CHECK(t == (TensorType{x.dtype, {x.shape.dim(-1)}}), "{}: expected {}[{}] for the channels of x, got {}",
                     op, to_string(x.dtype), x.shape.dim(-1), to_string(t));
  LATHE_USER_CHECK(p.eps >= 0 && std::isfinite(p.eps), "{}: eps {} is not a small positive number", op, p.eps);
}

struct BatchNorm {
  using Params = BatchNormParams;
  static constexpr OpInfo info{
      .name = "batch_norm", .doc = "normalises each channel over the batch; also gives mean and variance", .inputs = 3};

  static Types infer(ArgTypes x, const Params& p) {
    check("batch_norm", x[0], x.subspan(1), p);
    return {x[0], x[1], x[1]};
  }

  static Values expand(Builder&, ArgValues in, const Params& p) {
    const Value x = in[0];
    const Ints axes = leading_axes(x.shape());
    const Value mean = reduce_mean(x, axes);
    const Value centered = x - mean;
    const Value var = reduce_mean(square(centered), axes);
    return {centered * (rsqrt(var + p.eps) * in[1]) + in[2], mean, var};
  }

  // mean and var receive cotangents when a loss reads them, or when a derivative that does is differentiated again.
  static Values vjp(const Vjp& v, const Params& p) {
    const Value x = v.x[0];
    Value dx, dgamma, dbeta;
    if (v.has_dy(0)) {
      const Value in[] = {v.dy(), x, v.x[1], v.y[1], v.y[2]};
      const Values d = v.b.add(batch_norm_grad_op, in, make_params(p));
      dx = d[0];
      dgamma = d[1];
      dbeta = d[2];
    }
    const double share = 1.0 / static_cast<double>(count_of(x.shape()));
    const auto add_to_dx = [&](Value d) { dx = dx ? dx + d : d; };
    if (v.has_dy(1)) add_to_dx(broadcast_to(v.dy(1) * share, x.shape()));
    if (v.has_dy(2)) add_to_dx((x - v.y[1]) * (v.dy(2) * (2 * share)));
    return {dx, dgamma, dbeta};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int64_t channels = x[1].numel(), count = count_of(x[0].shape());
    for (int64_t c = 0; c < channels; ++c) {
      double mean = 0, var = 0;
      for (int64_t i = c; i < x[0].numel(); i += channels) mean += x[0][i] / static_cast<double>(count);
      for (int64_t i = c; i < x[0].numel(); i += channels)
        var += (x[0][i] - mean) * (x[0][i] - mean) / static_cast<double>(count);
      y[1][c] = mean;
      y[2][c] = var;
      for (int64_t i = c; i < x[0].numel(); i += channels)
        y[0][i] = (x[0][i] - mean) / std::sqrt(var + p.eps) * x[1][c] + x[2][c];
    }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape x, double eps) {
      const TensorType c{DType::f32, {x.dim(-1)}};
      return Sample{label, {{{DType::f32, x}, -2, 2}, {c, 0.5, 1.5}, {c}}, make_params(Params{eps})};
    };
    return {s("image", {2, 4, 3, 5}, 1e-5), s("matrix", {12, 7}, 1e-5), s("tall", {1100, 3}, 1e-3),
            s("wide", {3, 200}, 1e-5)};
  }
};

struct BatchNormGrad {
  using Params = BatchNormParams;
  static constexpr OpInfo info{
      .name = "batch_norm_grad", .doc = "derivatives of batch_norm by x, gamma and beta", .inputs = 5};

  static Types infer(ArgTypes x, const Params& p) {
    check("batch_norm_grad", x[1], x.subspan(2), p);
    LATHE_USER_CHECK(x[0] == x[1], "batch_norm_grad: dy {} does not fit x {}", to_string(x[0]), to_string(x[1]));
    return {x[1], x[2], x[2]};
  }

  static Values expand(Builder&, ArgValues in, const Params& p) {
    const Value dy = in[0], x = in[1];
    const Ints axes = leading_axes(x.shape());
    const Value rstd = rsqrt(in[4] + p.eps);
    const Value normal = (x - in[3]) * rstd;
    const Value dgamma = reduce_sum(dy * normal, axes), dbeta = reduce_sum(dy, axes);
    const double share = 1.0 / static_cast<double>(count_of(x.shape()));
    return {(dy - dbeta * share - normal * (dgamma * share)) * (in[2] * rstd), dgamma, dbeta};
  }

  static void reference(RefOuts out, RefIns in, const Params& p) {
    const RefTensor &dy = in[0], &x = in[1], &gamma = in[2], &mean = in[3], &var = in[4];
    const int64_t channels = gamma.numel();
    const double count = static_cast<double>(count_of(x.shape()));
    for (int64_t c = 0; c < channels; ++c) {
      const double rstd = 1 / std::sqrt(var[c] + p.eps);
      double sum = 0, dot = 0;
      for (int64_t i = c; i < x.numel(); i += channels) {
        sum += dy[i];
        dot += dy[i] * (x[i] - mean[c]) * rstd;
      }
      for (int64_t i = c; i < x.numel(); i += channels)
        out[0][i] = gamma[c] * rstd * (dy[i] - sum / count - (x[i] - mean[c]) * rstd * dot / count);
      out[1][c] = dot;
      out[2][c] = sum;
    }
  }

  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (const Sample& s : BatchNorm::samples()) {
      const SampleInput x = s.inputs[0], gamma = s.inputs[1];
      out.push_back({s.label, {{x.type}, x, gamma, {gamma.type}, {gamma.type, 0.5, 2}}, s.params});
    }
    return out;
  }
};

}  // namespace

constinit const OpDef batch_norm_op = make_op<BatchNorm>();
constinit const OpDef batch_norm_grad_op = make_op<BatchNormGrad>();

BatchNormResult batch_norm(Value x, Value gamma, Value beta, double eps) {
  const Value in[] = {x, gamma, beta};
  const Values out = x.builder().add(batch_norm_op, in, make_params(BatchNormParams{eps}));
  return {out[0], out[1], out[2]};
}

}  // namespace lathe
