// Ops against numbers worked out by hand: the references are compared with nothing else.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "base/philox.h"
#include "ir/interpret.h"
#include "ops/arg_max.h"
#include "ops/attention.h"
#include "ops/avg_pool.h"
#include "ops/batch_norm.h"
#include "ops/concat.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/layer_norm.h"
#include "ops/matmul.h"
#include "ops/max_pool.h"
#include "ops/pad.h"
#include "ops/random_uniform.h"
#include "ops/reduce.h"
#include "ops/slice.h"
#include "ops/softmax.h"
#include "ops/transpose.h"

namespace lathe {
namespace {

using Numbers = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

HostTensor f32(Shape s, Numbers data) { return {{DType::f32, s}, std::move(data)}; }
HostTensor i32(Shape s, Numbers data) { return {{DType::i32, s}, std::move(data)}; }
HostTensor i64(Shape s, Numbers data) { return {{DType::i64, s}, std::move(data)}; }

std::vector<Numbers> run_all(const std::vector<HostTensor>& inputs, const std::function<Values(const Values&)>& build) {
  Builder b("values");
  Values x;
  for (size_t i = 0; i < inputs.size(); ++i)
    x.push_back(b.input(inputs[i].type, InputKind::batch, "x" + std::to_string(i)));
  const Values y = build(x);
  for (size_t i = 0; i < y.size(); ++i) b.output(y[i], OutputKind::result, "y" + std::to_string(i));
  std::vector<Numbers> out;
  for (const HostTensor& t : interpret(b.finish(), inputs, Precision::exact)) out.push_back(t.data);
  return out;
}
Numbers run(const std::vector<HostTensor>& inputs, const std::function<Value(const Values&)>& build) {
  return run_all(inputs, [&](const Values& x) { return Values{build(x)}; })[0];
}

void expect_near(const Numbers& got, const Numbers& want, double tolerance = 1e-12) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance) << "element " << i;
}

Numbers count(size_t n, double first = 1) {
  Numbers out(n);
  std::iota(out.begin(), out.end(), first);
  return out;
}

TEST(Conv2d, KnownValues) {
  const HostTensor x = f32({1, 3, 3, 1}, count(9)), w = f32({1, 2, 2, 1}, count(4));
  expect_near(run({x, w}, [](const Values& v) { return conv2d(v[0], v[1], {}); }), {37, 47, 67, 77});
  expect_near(run({x, w}, [](const Values& v) { return conv2d(v[0], v[1], {.stride_h = 2, .stride_w = 2}); }), {37});
  // Padding above and on the left: the first output sees only x[0][0], through the last tap.
  expect_near(run({x, w},
                  [](const Values& v) {
                    return conv2d(v[0], v[1], {.stride_h = 3, .stride_w = 3, .pad_top = 1, .pad_left = 1});
                  }),
              {4});
  expect_near(run({x, w}, [](const Values& v) { return conv2d(v[0], v[1], {.dilation_h = 2, .dilation_w = 2}); }),
              {1 + 2 * 3 + 3 * 7 + 4 * 9});
  // Two groups of one channel: each output channel sees its own input channel.
  expect_near(run({f32({1, 1, 1, 2}, {3, 5}), f32({2, 1, 1, 1}, {10, 100})},
                  [](const Values& v) { return conv2d(v[0], v[1], {.groups = 2}); }),
              {30, 500});
}

// <conv(x, w), dy> = <x, conv_dx(dy, w)> = <w, conv_dw(x, dy)> for every geometry of the samples.
TEST(Conv2d, DerivativesAreTransposes) {
  int cases = 0;
  for (const Sample& s : conv2d_op.samples()) {
    const Conv2dParams p = *static_cast<const Conv2dParams*>(s.params.get());
    const TensorType tx = s.inputs[0].type, tw = s.inputs[1].type;
    const TensorType ty{DType::f32, conv_geometry(tx.shape, tw.shape, p).y()};
    const auto values = [](const TensorType& t, uint32_t stream) {
      HostTensor out{t, Numbers(static_cast<size_t>(t.numel()))};
      for (size_t i = 0; i < out.data.size(); ++i)
        out.data[i] = static_cast<double>(CounterRng(1, stream, 0, 0).uniform(i)) - 0.5;
      return out;
    };
    const auto out = run_all({values(tx, 0), values(tw, 1), values(ty, 2)}, [&](const Values& v) -> Values {
      return {sum_all(conv2d(v[0], v[1], p) * v[2]), sum_all(conv2d_dx(v[2], v[1], p, v[0].dim(1), v[0].dim(2)) * v[0]),
              sum_all(conv2d_dw(v[0], v[2], p, v[1].dim(1), v[1].dim(2)) * v[1])};
    });
    EXPECT_NEAR(out[0][0], out[1][0], 1e-10) << s.label;
    EXPECT_NEAR(out[0][0], out[2][0], 1e-10) << s.label;
    ++cases;
  }
  EXPECT_GT(cases, 10);
}

TEST(MaxPool, FirstOfEqualsPaddingNeverAndNanAlways) {
  const PoolParams all{.kernel_h = 2, .kernel_w = 2};
  const auto pools = [&](const Values& v) -> Values {
    return {max_pool(v[0], all), max_pool_grad(v[1], v[0], all), max_pool_pick(v[2], v[0], all)};
  };
  const HostTensor dy = f32({1, 1, 1, 1}, {7}), t = f32({1, 2, 2, 1}, {10, 20, 30, 40});
  auto out = run_all({f32({1, 2, 2, 1}, {1, 3, 3, 2}), dy, t}, pools);
  EXPECT_EQ(out[0], (Numbers{3}));
  EXPECT_EQ(out[1], (Numbers{0, 7, 0, 0}));
  EXPECT_EQ(out[2], (Numbers{20}));
  out = run_all({f32({1, 2, 2, 1}, {1, kNan, 3, kNan}), dy, t}, pools);
  EXPECT_TRUE(std::isnan(out[0][0]));
  EXPECT_EQ(out[1], (Numbers{0, 7, 0, 0}));
  const PoolParams padded{.kernel_h = 2, .kernel_w = 2, .pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1};
  EXPECT_EQ(run({f32({1, 1, 1, 1}, {-5})}, [&](const Values& v) { return max_pool(v[0], padded); }),
            (Numbers{-5, -5, -5, -5}));
}

TEST(AvgPool, PaddingCountsAsZeros) {
  const PoolParams padded{.kernel_h = 2, .kernel_w = 2, .pad_top = 1, .pad_left = 1};
  expect_near(run({f32({1, 2, 2, 1}, {4, 8, 12, 16})}, [&](const Values& v) { return avg_pool(v[0], padded); }),
              {1, 3, 4, 10});
}

TEST(Softmax, StableAndNormalised) {
  const HostTensor x = f32({2, 3}, {1e4, 1e4 + 1, 1e4 + 2, -1e4, 0, 1});
  const auto out = run_all({x}, [](const Values& v) -> Values { return {softmax(v[0]), log_softmax(v[0])}; });
  const double z = 1 + std::exp(-1) + std::exp(-2);
  expect_near(out[0],
              {std::exp(-2) / z, std::exp(-1) / z, 1 / z, 0, 1 / (1 + std::exp(1)), std::exp(1) / (1 + std::exp(1))});
  expect_near({out[1][0], out[1][1], out[1][2]}, {-2 - std::log(z), -1 - std::log(z), -std::log(z)});
  EXPECT_NEAR(out[1][3], -1e4 - 1 - std::log1p(std::exp(-1)), 1e-9);
}

// The values of torch.nn.functional.cross_entropy(..., label_smoothing=s, reduction="none").
TEST(CrossEntropy, KnownValues) {
  const HostTensor x = f32({2, 3}, {1, 2, 3, 1000, 1001, 999}), labels = i32({2}, {2, 0});
  const double lse = std::log(1 + std::exp(-1) + std::exp(-2));
  expect_near(run({x, labels}, [](const Values& v) { return cross_entropy(v[0], v[1]); }), {lse, lse + 1});
  EXPECT_NEAR(lse, 0.4076059644443803, 1e-15);
  expect_near(run({x, labels}, [](const Values& v) { return cross_entropy(v[0], v[1], 0.1); }),
              {lse + 0.1, lse + 1 - 0.1 * 0});
}

TEST(Norms, StatisticsAndScale) {
  const HostTensor x = f32({2, 2}, {1, 3, 10, 14}), gamma = f32({2}, {1, 2}), beta = f32({2}, {0, 5});
  auto out = run_all({x, gamma, beta}, [](const Values& v) {
    return v[0].builder().add(layer_norm_op, v, make_params(LayerNormParams{0}));
  });
  expect_near(out[0], {-1, 7, -1, 7});
  expect_near(out[1], {2, 12});
  expect_near(out[2], {1, 0.5});
  out = run_all({x, gamma, beta}, [](const Values& v) -> Values {
    const BatchNormResult r = batch_norm(v[0], v[1], v[2], 0);
    return {r.y, r.mean, r.var};
  });
  expect_near(out[0], {-1, 3, 1, 7});
  expect_near(out[1], {5.5, 8.5});
  expect_near(out[2], {20.25, 30.25});
}

TEST(Attention, MeansAndMasks) {
  const HostTensor zero = f32({1, 1, 3, 2}, Numbers(6, 0)), v = f32({1, 1, 3, 2}, {1, 2, 3, 4, 8, 9});
  const auto attend = [](bool causal) { return [=](const Values& x) { return attention(x[0], x[0], x[1], causal); }; };
  expect_near(run({zero, v}, attend(false)), {4, 5, 4, 5, 4, 5});
  expect_near(run({zero, v}, attend(true)), {1, 2, 2, 3, 4, 5});
  // A sharp query picks one position.
  const HostTensor q = f32({1, 1, 2, 1}, {100, -100}), k = f32({1, 1, 2, 1}, {1, -1}), w = f32({1, 1, 2, 1}, {5, 6});
  expect_near(run({q, k, w}, [](const Values& x) { return attention(x[0], x[1], x[2], false, 1.0); }), {5, 6});
}

TEST(Gather, RowsAndTheirSums) {
  const HostTensor table = f32({3, 2}, count(6)), ids = i32({2, 2}, {2, 0, 2, 2});
  EXPECT_EQ(run({table, ids}, [](const Values& v) { return embedding(v[0], v[1]); }),
            (Numbers{5, 6, 1, 2, 5, 6, 5, 6}));
  EXPECT_EQ(run({ids, f32({2, 2, 1}, {1, 10, 100, 1000})}, [](const Values& v) { return scatter_add(v[0], v[1], 4); }),
            (Numbers{10, 0, 1101, 0}));
}

TEST(ArgMax, FirstOfEqualsAndNan) {
  const HostTensor x = f32({3, 3}, {1, 5, 5, kNan, 9, kNan, -3, -3, -4});
  EXPECT_EQ(run({x}, [](const Values& v) { return arg_max(v[0]); }), (Numbers{1, 0, 0}));
  EXPECT_EQ(run({x}, [](const Values& v) { return arg_max(v[0], 0); }), (Numbers{1, 1, 1}));
}

TEST(SlicePadConcat, MoveElements) {
  const HostTensor x = f32({2, 4}, count(8));
  EXPECT_EQ(run({x}, [](const Values& v) { return slice(v[0], {1, 0}, {1, 2}, {1, 3}); }), (Numbers{5, 8}));
  EXPECT_EQ(run({x}, [](const Values& v) { return slice_axis(v[0], -1, 2, 2); }), (Numbers{3, 4, 7, 8}));
  EXPECT_EQ(run({f32({2}, {1, 2})}, [](const Values& v) { return pad(v[0], {1}, {2}, 9, {1}); }),
            (Numbers{9, 1, 9, 2, 9, 9}));
  EXPECT_EQ(run({x, f32({2, 1}, {-1, -2})}, [](const Values& v) { return concat(v, 1); }),
            (Numbers{1, 2, 3, 4, -1, 5, 6, 7, 8, -2}));
  EXPECT_EQ(run({x}, [](const Values& v) { return transpose(v[0], {1, 0}); }), (Numbers{1, 5, 2, 6, 3, 7, 4, 8}));
}

TEST(RandomUniform, DependsOnTheSampleNotOnItsPlace) {
  const HostTensor key = i64({2}, {123456789012345, 7});
  const auto draw = [&](Numbers index) {
    const int64_t n = static_cast<int64_t>(index.size());
    return run({key, i64({n}, std::move(index))}, [&](const Values& v) {
      return random_uniform(v[0], v[1], 9, {n, 5});
    });
  };
  const Numbers a = draw({4, 1000000}), b = draw({1000000, 3, 4});
  for (size_t j = 0; j < 5; ++j) {
    EXPECT_EQ(a[j], b[10 + j]);
    EXPECT_EQ(a[5 + j], b[j]);
    EXPECT_EQ(a[j], static_cast<double>(CounterRng(123456789012345, 9, 7, 4).uniform(j)));
    EXPECT_NE(a[j], b[5 + j]);
  }
}

TEST(Dropout, KeepsItsShareScaledUp) {
  const HostTensor x = f32({4, 1000}, Numbers(4000, 2)), key = i64({2}, {1, 2}), index = i64({4}, {0, 1, 2, 3});
  const Numbers y = run({x, key, index}, [](const Values& v) { return dropout(v[0], v[1], v[2], 0.25, 3); });
  int kept = 0;
  for (double v : y) {
    EXPECT_TRUE(v == 0 || std::abs(v - 2 / 0.75) < 1e-12) << v;
    kept += v != 0;
  }
  EXPECT_NEAR(kept, 3000, 4 * std::sqrt(4000 * 0.25 * 0.75));
  const Numbers other = run({x, key, index}, [](const Values& v) { return dropout(v[0], v[1], v[2], 0.25, 4); });
  EXPECT_NE(y, other);
  // A masked infinity or NaN is gone, not NaN.
  Numbers bad(4000, std::numeric_limits<double>::infinity());
  for (double v :
       run({f32({4, 1000}, bad), key, index}, [](const Values& u) { return dropout(u[0], u[1], u[2], 0.25, 3); }))
    EXPECT_FALSE(std::isnan(v));
}

TEST(Functions, ReturnTheirArgumentWhereNothingIsToDo) {
  Builder b("g");
  const Value x = b.input({DType::f32, {2, 3}}, InputKind::batch, "x"),
              key = b.input({DType::i64, {2}}, InputKind::batch, "k");
  EXPECT_EQ(dropout(x, key, key, 0, 1).id(), x.id());
  EXPECT_EQ(concat(std::span(&x, 1), -1).id(), x.id());
  EXPECT_EQ(transpose(x, {0, 1}).id(), x.id());
  EXPECT_EQ(b.graph().nodes.size(), 0u);
}

TEST(Shapes, EmptyTensorsHaveStridesThatFit) {
  constexpr int64_t large = int64_t{1} << 40;
  EXPECT_THROW(Shape({0, large, large}), UserError);
  EXPECT_THROW(Shape({large, 0, large}), UserError);
  EXPECT_EQ(Shape({large, 0, 3}).strides(), (Ints{0, 3, 1}));
}

TEST(Functions, RefuseBadArgumentsAsUserErrors) {
  Builder b("g");
  const Value x = b.input({DType::f32, {2, 3}}, InputKind::batch, "x");
  EXPECT_THROW(concat({}, 0), UserError);
  EXPECT_THROW(concat(std::span(&x, 1), 2), UserError);
  EXPECT_THROW(arg_max(x, 2), UserError);
  EXPECT_THROW(reduce_sum(x, {5}), UserError);
  EXPECT_THROW(reduce_sum(x, {0, -2}), UserError);
  EXPECT_THROW(reduce_mean(x, {-3}), UserError);
  EXPECT_THROW(transpose(x, {1}), UserError);
  EXPECT_THROW(transpose(x, {}), UserError);
  EXPECT_THROW(slice_axis(x, 3, 0, 1), UserError);
  EXPECT_THROW(slice(x, {0}, {1}), UserError);
  EXPECT_THROW(matmul(x, x), UserError);
  EXPECT_THROW(attention(b.input({DType::f32, {}}, InputKind::batch, "s"), x, x, true), UserError);
  EXPECT_THROW(add(x, b.input({DType::f32, {4}}, InputKind::batch, "v")), UserError);
  EXPECT_THROW(full(b, {DType::f32, {2}}, 0) + x, UserError);
  EXPECT_THROW(unary("foo", x), UserError);
  EXPECT_THROW(unary("add", x), UserError);
  EXPECT_THROW(binary("exp", x, x), UserError);
  EXPECT_THROW(elementwise("exp", {}), UserError);
}

}  // namespace
}  // namespace lathe
