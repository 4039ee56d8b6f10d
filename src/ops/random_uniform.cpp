#include "ops/random_uniform.h"

#include <limits>

#include "base/philox.h"

namespace lathe {
namespace {

uint64_t whole(double v) { return static_cast<uint64_t>(static_cast<int64_t>(round_to(DType::i64, v))); }

struct RandomUniform {
  using Params = RandomUniformParams;
  static constexpr OpInfo info{.name = "random_uniform",
                               .doc = "numbers in [0, 1) from key {seed, step} and sample indices",
                               .inputs = 2,
                               .traits = kRandom | kExact};

  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(x[0] == (TensorType{DType::i64, {2}}), "random_uniform: the key must be i64[2], got {}",
                     to_string(x[0]));
    LATHE_USER_CHECK(p.stream >= 0 && p.stream <= std::numeric_limits<uint32_t>::max(),
                     "random_uniform: stream {} is outside of [0, 2^32)", p.stream);
    const Shape shape(p.shape);
    LATHE_USER_CHECK(shape.ndim() >= 1 && x[1] == (TensorType{DType::i64, {shape[0]}}),
                     "random_uniform: shape {} needs one i64 index per sample, got {}", to_string(shape),
                     to_string(x[1]));
    return {{DType::f32, shape}};
  }

  static Cost cost(ArgTypes in, ArgTypes out, const Params&) {
    Cost c = detail::cost_of_bytes(in, out);
    c.flops = 20.0 * static_cast<double>(out[0].numel());  // ten rounds for four numbers
    return c;
  }

  // Numbers are those of a sample, whoever draws them.
  static PlacementRows placements(ArgTypes, ArgTypes, const Params&) {
    return {{{kReplicated, split_along(0)}, {split_along(0)}}};
  }
  static Params resized(ArgTypes, ArgTypes y, const Params& p) { return {p.stream, y[0].shape.to_ints()}; }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int64_t samples = y[0].shape()[0], per_sample = samples ? y[0].numel() / samples : 0;
    for (int64_t b = 0; b < samples; ++b) {
      const CounterRng rng(whole(x[0][0]), static_cast<uint32_t>(p.stream), static_cast<uint32_t>(whole(x[0][1])),
                           static_cast<uint32_t>(whole(x[1][b])));
      for (int64_t j = 0; j < per_sample; ++j)
        y[0][b * per_sample + j] = static_cast<double>(rng.uniform(static_cast<uint64_t>(j)));
    }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, int64_t stream, Shape shape) {
      return Sample{label,
                    {{{DType::i64, {2}}, 0, 1e6}, {{DType::i64, {shape[0]}}, 0, 1e9}},
                    make_params(Params{stream, shape.to_ints()})};
    };
    return {s("rows", 0, {4, 7}), s("image", 5, {3, 4, 5, 2}), s("one_each", 4294967295, {9}), s("long", 1, {2, 1030}),
            s("nothing", 2, {0, 3})};
  }
};

}  // namespace

constinit const OpDef random_uniform_op = make_op<RandomUniform>();

Value random_uniform(Value key, Value index, int64_t stream, const Shape& shape) {
  const Value x[] = {key, index};
  return key.builder().add1(random_uniform_op, x, RandomUniformParams{stream, shape.to_ints()});
}

}  // namespace lathe
