#include "ops/group_norm.h"

#include <cmath>

#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

void check_norm(const char* op, ArgTypes x, int least_dims, double eps) {
  const TensorType& t = x[0];
  LATHE_USER_CHECK(is_float(t.dtype) && t.shape.ndim() >= least_dims && t.shape.dim(-1) >= 1,
                   "{}: expected floats of {} dimensions or more with a last axis that is not empty, got {}", op,
                   least_dims, to_string(t));
  for (const TensorType& c : x.subspan(1))
    LATHE_USER_CHECK(c == (TensorType{t.dtype, {t.shape.dim(-1)}}), "{}: expected {}[{}] for the channels of x, got {}",
                     op, to_string(t.dtype), t.shape.dim(-1), to_string(c));
  LATHE_USER_CHECK(eps >= 0 && std::isfinite(eps), "{}: eps {} is not a small positive number", op, eps);
}

struct RmsNorm {
  using Params = RmsNormParams;
  static constexpr OpInfo info{
      .name = "rms_norm", .doc = "x / sqrt(mean(x^2) + eps) * gamma over the last axis", .inputs = 2};

  static Types infer(ArgTypes x, const Params& p) {
    check_norm("rms_norm", x, 1, p.eps);
    return {x[0]};
  }

  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {x[0] * rsqrt(reduce_mean(square(x[0]), {-1}, true) + p.eps) * x[1]};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int64_t n = x[0].shape().dim(-1);
    for (int64_t row = 0; row < x[0].numel(); row += n) {
      double squares = 0;
      for (int64_t i = 0; i < n; ++i) squares += x[0][row + i] * x[0][row + i];
      const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + p.eps);
      for (int64_t i = 0; i < n; ++i) y[0][row + i] = x[0][row + i] * scale * x[1][i];
    }
  }

  static std::vector<Sample> samples() {
    return {{"rows", {{{DType::f32, {2, 3, 7}}}, {{DType::f32, {7}}, 0.5, 1.5}}, make_params(Params{})}};
  }
};

struct GroupNorm {
  using Params = GroupNormParams;
  static constexpr OpInfo info{
      .name = "group_norm", .doc = "normalises groups of the channels of each sample", .inputs = 3};

  static Types infer(ArgTypes x, const Params& p) {
    check_norm("group_norm", x, 2, p.eps);
    LATHE_USER_CHECK(p.groups >= 1 && x[0].shape.dim(-1) % p.groups == 0, "group_norm: {} groups of {} channels",
                     p.groups, x[0].shape.dim(-1));
    return {x[0]};
  }

  static Values expand(Builder&, ArgValues in, const Params& p) {
    const Shape s = in[0].shape();
    const int64_t samples = s[0], channels = s.dim(-1), per_group = channels / p.groups;
    int64_t pixels = 1;
    for (int i = 1; i + 1 < s.ndim(); ++i) pixels *= s[i];
    const Value x = reshape(in[0], {samples, pixels, p.groups, per_group});
    const Value centered = x - reduce_mean(x, {1, 3}, true);
    const Value rstd = rsqrt(reduce_mean(square(centered), {1, 3}, true) + p.eps);
    const Shape as_groups{p.groups, per_group};
    return {reshape(centered * rstd * reshape(in[1], as_groups) + reshape(in[2], as_groups), s)};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape& s = x[0].shape();
    const int64_t channels = s.dim(-1), per_group = channels / p.groups,
                  pixels = x[0].numel() ? x[0].numel() / s[0] / channels : 0;
    const double count = static_cast<double>(pixels * per_group);
    for (int64_t n = 0; pixels > 0 && n < s[0]; ++n)
      for (int64_t g = 0; g < p.groups; ++g) {
        const auto each = [&](auto&& f) {
          for (int64_t i = 0; i < pixels; ++i)
            for (int64_t c = g * per_group; c < (g + 1) * per_group; ++c) f((n * pixels + i) * channels + c, c);
        };
        double mean = 0, variance = 0;
        each([&](int64_t at, int64_t) { mean += x[0][at] / count; });
        each([&](int64_t at, int64_t) { variance += (x[0][at] - mean) * (x[0][at] - mean) / count; });
        const double rstd = 1 / std::sqrt(variance + p.eps);
        each([&](int64_t at, int64_t c) { y[0][at] = (x[0][at] - mean) * rstd * x[1][c] + x[2][c]; });
      }
  }

  static std::vector<Sample> samples() {
    const SampleInput channels{{DType::f32, {6}}, 0.5, 1.5};
    return {{"image", {{{DType::f32, {2, 2, 3, 6}}}, channels, channels}, make_params(Params{3, 1e-5})},
            {"flat", {{{DType::f32, {3, 6}}}, channels, channels}, make_params(Params{2, 1e-3})}};
  }
};

struct InstanceNorm {
  using Params = InstanceNormParams;
  static constexpr OpInfo info{.name = "instance_norm", .doc = "normalises each channel of each sample", .inputs = 3};
  static Types infer(ArgTypes x, const Params& p) {
    check_norm("instance_norm", x, 3, p.eps);
    return {x[0]};
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {group_norm(x[0], x[1], x[2], x[0].dim(-1), p.eps)};
  }
  static std::vector<Sample> samples() {
    const SampleInput channels{{DType::f32, {3}}, 0.5, 1.5};
    return {{"image", {{{DType::f32, {2, 3, 4, 3}}}, channels, channels}, make_params(Params{})}};
  }
};

struct L2Normalize {
  using Params = L2NormalizeParams;
  static constexpr OpInfo info{.name = "l2_normalize", .doc = "x / max(|x|, eps) over the last axis", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    check_norm("l2_normalize", x, 1, p.eps);
    return {x[0]};
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value squares = reduce_sum(square(x[0]), {-1}, true);
    return {x[0] * rsqrt(maximum(squares, constant_like(squares, p.eps * p.eps)))};
  }
  static std::vector<Sample> samples() { return {{"rows", {{{DType::f32, {2, 3, 5}}}}, make_params(Params{})}}; }
};

}  // namespace

constinit const OpDef group_norm_op = make_op<GroupNorm>();
constinit const OpDef instance_norm_op = make_op<InstanceNorm>();
constinit const OpDef l2_normalize_op = make_op<L2Normalize>();
constinit const OpDef rms_norm_op = make_op<RmsNorm>();

Value rms_norm(Value x, Value gamma, double eps) {
  const Value in[] = {x, gamma};
  return x.builder().add1(rms_norm_op, in, RmsNormParams{eps});
}
Value group_norm(Value x, Value gamma, Value beta, int64_t groups, double eps) {
  const Value in[] = {x, gamma, beta};
  return x.builder().add1(group_norm_op, in, GroupNormParams{groups, eps});
}
Value instance_norm(Value x, Value gamma, Value beta, double eps) {
  const Value in[] = {x, gamma, beta};
  return x.builder().add1(instance_norm_op, in, InstanceNormParams{eps});
}
Value l2_normalize(Value x, double eps) {
  return x.builder().add1(l2_normalize_op, std::span(&x, 1), L2NormalizeParams{eps});
}

}  // namespace lathe
