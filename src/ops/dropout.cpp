#include "ops/dropout.h"

#include <limits>

#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/random_uniform.h"

namespace lathe {
namespace {

struct Dropout {
  using Params = DropoutParams;
  static constexpr OpInfo info{
      .name = "dropout", .doc = "zero with probability `rate`, else x / (1 - rate)", .inputs = 3, .traits = kRandom};

  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(p.rate >= 0 && p.rate < 1, "dropout: rate {} is outside of [0, 1)", p.rate);
    LATHE_USER_CHECK(p.stream >= 0 && p.stream <= std::numeric_limits<uint32_t>::max(),
                     "dropout: stream {} is outside of [0, 2^32)", p.stream);
    LATHE_USER_CHECK(is_float(x[0].dtype) && x[0].shape.ndim() >= 1, "dropout: expected floats [batch, ...], got {}",
                     to_string(x[0]));
    LATHE_USER_CHECK(x[1] == (TensorType{DType::i64, {2}}) && x[2] == (TensorType{DType::i64, {x[0].shape[0]}}),
                     "dropout: expected key i64[2] and index i64[{}], got {} and {}", x[0].shape[0], to_string(x[1]),
                     to_string(x[2]));
    return {x[0]};
  }

  static Values expand(Builder& b, ArgValues x, const Params& p) {
    if (p.rate == 0) return {x[0]};
    const Value u = random_uniform(x[1], x[2], p.stream, x[0].shape());
    // The bound is compared as f32 everywhere: u has 24 bits, so another rounding would keep other elements.
    const Value keep = less_equal(full(b, {DType::f32, {}}, round_to(DType::f32, p.rate)), u);
    return {select(keep, x[0] * (1 / (1 - p.rate)), constant_like(x[0], 0))};
  }

  static Values vjp(const Vjp& v, const Params& p) {
    return {dropout(v.dy(), v.x[1], v.x[2], p.rate, p.stream), Value(), Value()};
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape x, double rate, int64_t stream) {
      return Sample{label,
                    {{{DType::f32, x}}, {{DType::i64, {2}}, 0, 1e6}, {{DType::i64, {x[0]}}, 0, 1e9}},
                    make_params(Params{rate, stream})};
    };
    return {s("half", {6, 31}, 0.5, 3), s("tenth", {3, 4, 5}, 0.1, 0), s("long", {2, 1030}, 0.25, 1),
            s("none", {4, 5}, 0, 2), s("no_samples", {0, 4}, 0.5, 2)};
  }
};

}  // namespace

constinit const OpDef dropout_op = make_op<Dropout>();

Value dropout(Value x, Value key, Value index, double rate, int64_t stream) {
  if (rate == 0) return x;
  const Value in[] = {x, key, index};
  return x.builder().add1(dropout_op, in, DropoutParams{rate, stream});
}

}  // namespace lathe
