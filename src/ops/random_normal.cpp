#include "ops/random_normal.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/arg_max.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

std::vector<SampleInput> random_inputs(int64_t samples) {
  return {{{DType::i64, {2}}, 0, 1e6}, {{DType::i64, {samples}}, 0, 1e9}};
}

// In (0, 1]: its logarithm is finite.
Value positive_uniform(Value key, Value index, int64_t stream, const Shape& shape) {
  return 1.0 - random_uniform(key, index, stream, shape);
}

struct RandomNormal {
  using Params = RandomUniformParams;
  static constexpr OpInfo info{.name = "random_normal",
                               .doc = "normally distributed numbers from key {seed, step} and sample indices",
                               .inputs = 2,
                               .traits = kRandom};
  static Types infer(ArgTypes x, const Params& p) { return random_uniform_op.infer(x, &p); }

  // Two uniform numbers for each: [B, 2, per sample].
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Shape shape(p.shape);
    const int64_t samples = shape[0], each = samples > 0 ? shape.numel() / samples : 0;
    const Value u = random_uniform(x[0], x[1], p.stream, {samples, 2, each});
    const Value length = sqrt(log(1.0 - slice_axis(u, 1, 0, 1)) * -2.0);
    return {reshape(length * cos(slice_axis(u, 1, 1, 1) * (2 * std::numbers::pi)), shape)};
  }

  static std::vector<Sample> samples() { return {{"rows", random_inputs(4), make_params(Params{3, {4, 9}})}}; }
};

struct RandomExponential {
  using Params = RandomUniformParams;
  static constexpr OpInfo info{.name = "random_exponential",
                               .doc = "exponentially distributed numbers from key {seed, step} and sample indices",
                               .inputs = 2,
                               .traits = kRandom};
  static Types infer(ArgTypes x, const Params& p) { return random_uniform_op.infer(x, &p); }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {-log(positive_uniform(x[0], x[1], p.stream, Shape(p.shape)))};
  }
  static std::vector<Sample> samples() { return {{"rows", random_inputs(4), make_params(Params{3, {4, 9}})}}; }
};

struct RandomBernoulli {
  using Params = RandomBernoulliParams;
  static constexpr OpInfo info{.name = "random_bernoulli",
                               .doc = "1 with probability `rate`, else 0, from key {seed, step} and sample indices",
                               .inputs = 2,
                               .traits = kRandom};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(p.rate >= 0 && p.rate <= 1, "random_bernoulli: rate {} is outside of [0, 1]", p.rate);
    const RandomUniformParams u{p.stream, p.shape};
    return random_uniform_op.infer(x, &u);
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value u = random_uniform(x[0], x[1], p.stream, Shape(p.shape));
    // Rounded to f32 by hand, so that every device and the reference compare with the same number.
    return {cast(less(u, constant_like(u, round_to(DType::f32, p.rate))), DType::f32)};
  }
  static std::vector<Sample> samples() { return {{"rows", random_inputs(4), make_params(Params{3, {4, 9}, 0.3})}}; }
};

struct RandomInteger {
  using Params = RandomIntegerParams;
  static constexpr OpInfo info{.name = "random_integer",
                               .doc = "whole numbers in [lo, hi) from key {seed, step} and sample indices",
                               .inputs = 2,
                               .traits = kRandom};
  static Types infer(ArgTypes x, const Params& p) {
    constexpr int64_t kLeast = std::numeric_limits<int32_t>::min(), kMost = std::numeric_limits<int32_t>::max();
    LATHE_USER_CHECK(p.lo >= kLeast && p.hi <= kMost && p.lo < p.hi && p.hi - p.lo <= 1 << 24,
                     "random_integer: [{}, {}) is empty, larger than 2^24, or outside of i32", p.lo, p.hi);
    const RandomUniformParams u{p.stream, p.shape};
    return {{DType::i32, random_uniform_op.infer(x, &u)[0].shape}};
  }
  // u has 24 bits, so that u * (hi - lo) may round up to hi - lo: the minimum keeps it below.
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value u = random_uniform(x[0], x[1], p.stream, Shape(p.shape));
    const double count = static_cast<double>(p.hi - p.lo);
    const Value at = cast(minimum(u * count, constant_like(u, count - 1)), DType::i32);
    return {at + static_cast<double>(p.lo)};
  }
  // In f32, as devices compute: in f64 a product next to a whole number would not round up to it.
  static void reference(RefOuts y, RefIns x, const Params& p) {
    const RandomUniformParams u{p.stream, p.shape};
    random_uniform_op.reference(y, x, &u);
    const float count = static_cast<float>(p.hi - p.lo);
    for (int64_t i = 0; i < y[0].numel(); ++i)
      y[0][i] = std::floor(std::min(static_cast<float>(y[0][i]) * count, count - 1)) + static_cast<double>(p.lo);
  }
  static std::vector<Sample> samples() { return {{"rows", random_inputs(4), make_params(Params{3, {4, 9}, -2, 6})}}; }
};

struct RandomCategorical {
  using Params = RandomCategoricalParams;
  static constexpr OpInfo info{.name = "random_categorical",
                               .doc = "classes drawn with the probabilities of softmax(logits)",
                               .inputs = 3,
                               .traits = kRandom};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(x[0].dtype == DType::f32 && x[0].shape.ndim() >= 2,
                     "random_categorical: expected f32 [batch, ..., classes], got {}", to_string(x[0]));
    const RandomUniformParams u{p.stream, x[0].shape.to_ints()};
    random_uniform_op.infer(x.subspan(1), &u);
    const ArgMaxParams last{x[0].shape.ndim() - 1};
    return arg_max_op.infer(x.first(1), &last);
  }
  // The largest of logits plus Gumbel noise (Gumbel, 1954).
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value u = positive_uniform(x[1], x[2], p.stream, x[0].shape());
    const Value e = maximum(-log(u), constant_like(u, 1e-30));
    return {arg_max(x[0] - log(e), -1)};
  }
  static std::vector<Sample> samples() {
    std::vector<SampleInput> in = random_inputs(6);
    in.insert(in.begin(), {{DType::f32, {6, 2, 5}}, -2, 2});
    return {{"rows", in, make_params(Params{3})}};
  }
};

template <class P>
Value add_random(const OpDef& op, Value key, Value index, P p) {
  const Value in[] = {key, index};
  return key.builder().add1(op, in, std::move(p));
}

}  // namespace

constinit const OpDef random_bernoulli_op = make_op<RandomBernoulli>();
constinit const OpDef random_categorical_op = make_op<RandomCategorical>();
constinit const OpDef random_exponential_op = make_op<RandomExponential>();
constinit const OpDef random_integer_op = make_op<RandomInteger>();
constinit const OpDef random_normal_op = make_op<RandomNormal>();

Value random_normal(Value key, Value index, int64_t stream, const Shape& shape) {
  return add_random(random_normal_op, key, index, RandomUniformParams{stream, shape.to_ints()});
}
Value random_exponential(Value key, Value index, int64_t stream, const Shape& shape) {
  return add_random(random_exponential_op, key, index, RandomUniformParams{stream, shape.to_ints()});
}
Value random_bernoulli(Value key, Value index, int64_t stream, const Shape& shape, double rate) {
  return add_random(random_bernoulli_op, key, index, RandomBernoulliParams{stream, shape.to_ints(), rate});
}
Value random_integer(Value key, Value index, int64_t stream, const Shape& shape, int64_t lo, int64_t hi) {
  return add_random(random_integer_op, key, index, RandomIntegerParams{stream, shape.to_ints(), lo, hi});
}
Value random_categorical(Value logits, Value key, Value index, int64_t stream) {
  const Value in[] = {logits, key, index};
  return key.builder().add1(random_categorical_op, in, RandomCategoricalParams{stream});
}

}  // namespace lathe
