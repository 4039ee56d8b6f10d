// Composites against numbers worked out by hand: where an op has no reference of its own, its expansion is the
// definition, and nothing else in this folder would see that it is the wrong one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ir/interpret.h"
#include "ops/adaptive_pool.h"
#include "ops/bce_loss.h"
#include "ops/clamp.h"
#include "ops/conv1d.h"
#include "ops/cosine_similarity.h"
#include "ops/ctc_loss.h"
#include "ops/cumsum.h"
#include "ops/elementwise.h"
#include "ops/elu.h"
#include "ops/group_norm.h"
#include "ops/kl_loss.h"
#include "ops/leaky_relu.h"
#include "ops/log_sum_exp.h"
#include "ops/mse_loss.h"
#include "ops/pixel_shuffle.h"
#include "ops/random_normal.h"
#include "ops/reduce_any.h"
#include "ops/reduce_min.h"
#include "ops/resize.h"
#include "ops/sort.h"
#include "ops/triplet_loss.h"
#include "ops/variance.h"

namespace lathe {
namespace {

using Row = std::vector<double>;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

HostTensor floats(Shape s, Row data) { return {{DType::f32, s}, std::move(data)}; }
HostTensor whole(DType t, Shape s, Row data) { return {{t, s}, std::move(data)}; }

std::vector<Row> evaluate_all(const std::vector<HostTensor>& inputs,
                              const std::function<Values(const Values&)>& build) {
  Builder b("composite");
  Values x;
  for (const HostTensor& t : inputs) x.push_back(b.input(t.type, InputKind::batch, "x" + std::to_string(x.size())));
  const Values y = build(x);
  for (size_t i = 0; i < y.size(); ++i) b.output(y[i], OutputKind::result, "y" + std::to_string(i));
  std::vector<Row> out;
  for (const HostTensor& t : interpret(b.finish(), inputs, Precision::exact)) out.push_back(t.data);
  return out;
}

void expect_values(const std::vector<HostTensor>& inputs, const std::function<Value(const Values&)>& build,
                   const Row& want) {
  const Row got = evaluate_all(inputs, [&](const Values& x) { return Values{build(x)}; })[0];
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(want[i]))
      EXPECT_NEAR(got[i], want[i], 1e-12) << "element " << i;
    else
      EXPECT_TRUE(got[i] == want[i] || (std::isnan(got[i]) && std::isnan(want[i]))) << "element " << i;
  }
}

TEST(Composites, Activations) {
  const HostTensor x = floats({5}, {-4, -1, 0, 0.5, 7});
  expect_values({x}, [](const Values& v) { return clamp(v[0], -1, 2); }, {-1, -1, 0, 0.5, 2});
  expect_values({x}, [](const Values& v) { return leaky_relu(v[0], 0.1); }, {-0.4, -0.1, 0, 0.5, 7});
  expect_values({x}, [](const Values& v) { return elu(v[0], 2); }, {2 * std::expm1(-4), 2 * std::expm1(-1), 0, 0.5, 7});
  expect_values({x}, [](const Values& v) { return unary("hard_sigmoid", v[0]); }, {0, 1.0 / 3, 0.5, 0.5 + 1.0 / 12, 1});
  expect_values({x}, [](const Values& v) { return unary("sign", v[0]); }, {-1, -1, 0, 1, 1});
  expect_values({floats({2, 2}, {-1, -2, 3, -4}), floats({2}, {0.5, 2})},
                [](const Values& v) { return prelu(v[0], v[1]); }, {-0.5, -4, 3, -8});
  // Large arguments neither overflow nor lose their sign.
  expect_values({floats({2}, {-1000, 1000})}, [](const Values& v) { return softplus(v[0]); }, {0, 1000});
  expect_values({floats({4}, {0.5, 1.5, 2.5, -0.5})}, [](const Values& v) { return unary("round", v[0]); },
                {0, 2, 2, 0});
  expect_values({floats({2}, {-5, 5}), floats({2}, {3, 3})}, [](const Values& v) { return binary("mod", v[0], v[1]); },
                {1, 2});
}

TEST(Composites, Reductions) {
  const HostTensor x = floats({2, 3}, {1, 2, 6, -1, kNoNumber, 0});
  expect_values({x}, [](const Values& v) { return reduce_min(v[0], {1}); }, {1, kNoNumber});
  expect_values({floats({2, 3}, {1, 2, 6, 4, 4, 4})}, [](const Values& v) { return variance(v[0], {1}, false, 1); },
                {7, 0});
  expect_values({floats({2, 2}, {-kInfinity, -kInfinity, 1000, 1000})},
                [](const Values& v) { return log_sum_exp(v[0], {1}); }, {-kInfinity, 1000 + std::log(2.0)});
  const HostTensor bools = whole(DType::b8, {3, 2}, {0, 0, 0, 1, 1, 1});
  expect_values({bools}, [](const Values& v) { return reduce_any(v[0], {1}); }, {0, 1, 1});
  expect_values({bools}, [](const Values& v) { return reduce_all(v[0], {1}); }, {0, 0, 1});
  // The smallest i32 and every u8 have no negative.
  const double least = std::numeric_limits<int32_t>::min();
  expect_values({whole(DType::i32, {3}, {0, least, 5})}, [](const Values& v) { return reduce_min(v[0], {0}); },
                {least});
  expect_values({whole(DType::i32, {3}, {0, least, 5})}, [](const Values& v) { return arg_min(v[0], 0); }, {1});
  expect_values({whole(DType::u8, {3}, {7, 200, 9})}, [](const Values& v) { return reduce_min(v[0], {0}); }, {7});
  expect_values({floats({4}, {1, 2, 3, 4})}, [](const Values& v) { return cumsum(v[0], 0, true, true); }, {9, 7, 4, 0});
}

TEST(Composites, OrderIsStableAndNanIsLast) {
  const HostTensor x = floats({6}, {2, kNoNumber, 1, 2, kNoNumber, -kInfinity});
  expect_values({x}, [](const Values& v) { return arg_sort(v[0]); }, {5, 2, 0, 3, 1, 4});
  expect_values({x}, [](const Values& v) { return arg_sort(v[0], true); }, {0, 3, 2, 5, 1, 4});
  const auto best = evaluate_all({floats({2, 3}, {1, 3, 2, 9, 7, 8})}, [](const Values& v) {
    const Sorted s = top_k(v[0], 2);
    return Values{s.values, s.indices};
  });
  EXPECT_EQ(best[0], (Row{3, 2, 9, 8}));
  EXPECT_EQ(best[1], (Row{1, 2, 0, 2}));
}

TEST(Composites, Losses) {
  const HostTensor x = floats({3}, {1, -2, 5}), t = floats({3}, {1, 0, 2});
  expect_values({x, t}, [](const Values& v) { return mse_loss(v[0], v[1]); }, {0, 4, 9});
  expect_values({x, t}, [](const Values& v) { return l1_loss(v[0], v[1]); }, {0, 2, 3});
  expect_values({x, t}, [](const Values& v) { return huber_loss(v[0], v[1], 2); }, {0, 2, 4});
  expect_values({floats({2}, {0, 1000}), floats({2}, {1, 0})}, [](const Values& v) { return bce_loss(v[0], v[1]); },
                {std::log(2.0), 1000});
  expect_values({floats({2}, {0, 0}), floats({2}, {1, 0})},
                [](const Values& v) { return focal_loss(v[0], v[1], 0.25, 2); },
                {0.25 * 0.25 * std::log(2.0), 0.75 * 0.25 * std::log(2.0)});
  expect_values({floats({2}, {-1, -3}), floats({2}, {0.5, 0})}, [](const Values& v) { return kl_loss(v[0], v[1]); },
                {0.5 * (std::log(0.5) + 1), 0});
  expect_values({floats({2, 2}, {3, 4, 1, 0}), floats({2, 2}, {3, 4, 0, 2})},
                [](const Values& v) { return cosine_similarity(v[0], v[1]); }, {1, 0});
  const Row margins{0, 1};
  expect_values(
      {floats({2, 1}, {0, 0}), floats({2, 1}, {1, 3}), floats({2, 1}, {5, 3})},
      [](const Values& v) { return unary("round", triplet_loss(v[0], v[1], v[2], 1)); }, margins);
}

// Two frames, one label: blank-label, label-blank and label-label say it.
TEST(Composites, CtcSumsTheAlignments) {
  const double p = 0.3, q = 0.6;  // of the label in the two frames
  const Row x{std::log(1 - p), std::log(p), std::log(1 - q), std::log(q)};
  const HostTensor label = whole(DType::i32, {1, 1}, {1}), two = whole(DType::i32, {1}, {2}),
                   one = whole(DType::i32, {1}, {1});
  const auto loss = [](const Values& v) { return ctc_loss(v[0], v[1], v[2], v[3]); };
  expect_values({floats({1, 2, 2}, x), label, two, one}, loss, {-std::log((1 - p) * q + p * (1 - q) + p * q)});
  expect_values({floats({1, 2, 2}, x), label, one, one}, loss, {-std::log(p)});
  expect_values({floats({1, 2, 2}, x), label, two, whole(DType::i32, {1}, {0})}, loss, {-std::log((1 - p) * (1 - q))});
}

TEST(Composites, Images) {
  const HostTensor x = floats({1, 2, 2, 1}, {1, 2, 3, 4});
  expect_values({x}, [](const Values& v) { return resize_nearest(v[0], 2, 4); }, {1, 1, 2, 2, 3, 3, 4, 4});
  expect_values({x}, [](const Values& v) { return resize_bilinear(v[0], 2, 4); }, {1, 1.25, 1.75, 2, 3, 3.25, 3.75, 4});
  expect_values({x}, [](const Values& v) { return resize_bilinear(v[0], 2, 3, true); }, {1, 1.5, 2, 3, 3.5, 4});
  expect_values({x}, [](const Values& v) { return global_avg_pool(v[0]); }, {2.5});
  expect_values({x}, [](const Values& v) { return global_max_pool(v[0]); }, {4});
  expect_values({floats({1, 1, 1, 4}, {1, 2, 3, 4})}, [](const Values& v) { return pixel_shuffle(v[0], 2); },
                {1, 2, 3, 4});
  // Windows of 3 pixels to 2: {1, 2} and {2, 3}.
  expect_values({floats({1, 1, 3, 1}, {1, 2, 3})}, [](const Values& v) { return adaptive_avg_pool(v[0], 1, 2); },
                {1.5, 2.5});
  expect_values({floats({1, 3, 1}, {1, 2, 3}), floats({1, 2, 1}, {10, 1})},
                [](const Values& v) { return conv1d(v[0], v[1], {}); }, {12, 23});
  expect_values({floats({1, 2, 1}, {1, 2}), floats({1, 3, 1}, {1, 10, 100})},
                [](const Values& v) {
                  return conv_transpose1d(v[0], v[1], {{2}, {}, {}, {}, 1});
                },
                {1, 10, 102, 20, 200});
}

TEST(Composites, Norms) {
  expect_values({floats({1, 2}, {3, 4}), floats({2}, {1, 2})}, [](const Values& v) { return rms_norm(v[0], v[1], 0); },
                {3 / std::sqrt(12.5), 8 / std::sqrt(12.5)});
  expect_values({floats({1, 2}, {3, 4})}, [](const Values& v) { return l2_normalize(v[0]); }, {0.6, 0.8});
  expect_values({floats({1, 4}, {1, 3, 10, 30}), floats({4}, {1, 1, 1, 1}), floats({4}, {0, 0, 5, 5})},
                [](const Values& v) { return group_norm(v[0], v[1], v[2], 2, 0); }, {-1, 1, 4, 6});
}

TEST(Composites, RandomNumbersHaveTheirMoments) {
  constexpr int64_t n = 20000;
  const std::vector<HostTensor> in{whole(DType::i64, {2}, {7, 1}), whole(DType::i64, {1}, {3})};
  const auto drawn = evaluate_all(in, [](const Values& v) {
    return Values{random_normal(v[0], v[1], 1, {1, n}), random_bernoulli(v[0], v[1], 2, {1, n}, 0.3),
                  random_integer(v[0], v[1], 3, {1, n}, -1, 4), random_exponential(v[0], v[1], 4, {1, n})};
  });
  const double means[] = {0, 0.3, 1, 1}, variances[] = {1, 0.21, 2, 1};
  for (size_t k = 0; k < 4; ++k) {
    double mean = 0, square_sum = 0;
    for (double v : drawn[k]) mean += v / n;
    for (double v : drawn[k]) square_sum += (v - mean) * (v - mean) / n;
    EXPECT_NEAR(mean, means[k], 0.05) << k;  // five standard errors at least
    EXPECT_NEAR(square_sum, variances[k], 0.1) << k;
  }
  EXPECT_EQ(*std::ranges::min_element(drawn[2]), -1);
  EXPECT_EQ(*std::ranges::max_element(drawn[2]), 3);
  const Row logits{0, std::log(3.0), -kInfinity};
  Row many;
  for (int64_t i = 0; i < n; ++i) many.insert(many.end(), logits.begin(), logits.end());
  const auto classes = evaluate_all({floats({1, n, 3}, many), in[0], in[1]},
                                    [](const Values& v) { return Values{random_categorical(v[0], v[1], v[2], 5)}; })[0];
  double ones = 0;
  for (double c : classes) {
    ASSERT_LT(c, 2) << "a class without probability";
    ones += c / n;
  }
  EXPECT_NEAR(ones, 0.75, 0.02);
}

}  // namespace
}  // namespace lathe
