// Derivatives against finite differences, in f64 on the reference interpreter.
//
// First order, for every differentiable op and sample, by check_gradient. Second order, for small networks: the
// derivative of <grad L, v> against the central difference of grad L along v.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/philox.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/verify.h"
#include "ops/attention.h"
#include "ops/avg_pool.h"
#include "ops/batch_norm.h"
#include "ops/bce_loss.h"
#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/elu.h"
#include "ops/full.h"
#include "ops/grad.h"
#include "ops/layer_norm.h"
#include "ops/matmul.h"
#include "ops/max_pool.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/reshape.h"
#include "ops/sample.h"
#include "ops/softmax.h"
#include "ops/triplet_loss.h"
#include "passes/autodiff.h"
#include "passes/check/check_gradient.h"

namespace lathe {
namespace {

// A vjp of another type than the input, and one that is not there.
template <int kKind>
struct WrongVjp {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "wrong_vjp", .doc = ""};
  static Values expand(Builder&, ArgValues x, const Params&) { return {x[0] * 2.0}; }
  static Values vjp(const Vjp& v, const Params&) {
    static Builder other;
    if (kKind == 0) return {sum_all(v.dy())};
    if (kKind == 1) return {};
    return {other.input(v.x[0].type(), InputKind::batch, "x")};
  }
  static std::vector<Sample> samples() {
    return {{"plain", {{.type = {DType::f32, {3, 5}}}}, make_params(NoParams{})}};
  }
};

TEST(Gradient, RulesThatDoNotFitTheirInputsAreUserErrors) {
  const auto refused = [](const OpDef& op) {
    try {
      check_gradient(op, op.samples()[0]);
      ADD_FAILURE();
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("vjp of wrong_vjp: expected"), std::string::npos) << e.what();
    }
  };
  refused(make_op<WrongVjp<0>>());
  refused(make_op<WrongVjp<1>>());
  refused(make_op<WrongVjp<2>>());
}

// Of the differences, and what they may miss by, relative to the largest element.
struct Step {
  double h, tolerance;
};
constexpr Step kSecondStep = {1e-4, 1e-8};

std::vector<double> random_values(size_t n, uint64_t seed, double lo = -1, double hi = 1) {
  const CounterRng rng(seed, 77, 0, 0);
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = lo + static_cast<double>(rng.uniform(i)) * (hi - lo);
  return out;
}

using Inputs = std::vector<HostTensor>;

Inputs moved(Inputs x, const Inputs& direction, double by) {
  for (size_t k = 0; k < x.size(); ++k)
    for (size_t i = 0; i < x[k].data.size() && i < direction[k].data.size(); ++i)
      x[k].data[i] += by * direction[k].data[i];
  return x;
}

// f'(0) by the five-point rule, for every element of the results of f.
std::vector<double> central_difference(const std::function<std::vector<double>(double)>& f, double h) {
  const auto a = f(-2 * h), b = f(-h), c = f(h), d = f(2 * h);
  std::vector<double> out(a.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = (a[i] - 8 * b[i] + 8 * c[i] - d[i]) / (12 * h);
  return out;
}

TEST(Gradient, EveryOpAndSampleAgreesWithFiniteDifferences) {
  int checks = 0;
  for (const OpDef* op : registry().all()) {
    if (!op->is_differentiable()) continue;
    uint64_t seed = 1;
    bool checked = false, possible = false;  // where whole numbers go in or come out, there is nothing to check
    for (const Sample& s : op->samples()) {
      SCOPED_TRACE(fmt::format("{}/{}", op->name(), s.label));
      const Graph node = sample_graph(*op, s);
      const auto has_floats = [&](const ValueIds& values) {
        return std::ranges::any_of(values, [&](ValueId v) { return is_float(node.type(v).dtype); });
      };
      possible = possible || (has_floats(node.nodes[0].inputs) && has_floats(node.nodes[0].outputs));
      const GradientCheck check = check_gradient(*op, s, ++seed);
      if (!check.possible) continue;
      EXPECT_TRUE(check.ok()) << "relative error " << check.error << ", allowed " << check.tolerance;
      checked = true;
      ++checks;
    }
    EXPECT_TRUE(checked || !possible) << op->name();
  }
  EXPECT_GT(checks, 150);
}

// ---------------------------------------------------------------------------------------------------------------------
// Second order.

// A scalar loss over named inputs; the float ones are differentiated.
struct Network {
  std::vector<SampleInput> inputs;
  std::function<Value(const Values&)> loss;
};

// <grad L, v> differentiated again, against the difference of grad L along v.
void check_hessian(const Network& net, uint64_t seed) {
  Sample s{"network", net.inputs, nullptr};
  const Inputs x = sample_inputs(s, seed);
  std::vector<size_t> wrt;
  for (size_t i = 0; i < x.size(); ++i)
    if (is_float(x[i].type.dtype)) wrt.push_back(i);
  Inputs v(x.size()), both = x;
  for (size_t i : wrt) {
    v[i] = {x[i].type, random_values(x[i].data.size(), seed + i)};
    both.push_back(v[i]);
  }
  const auto build = [&](bool second) {
    Builder b("hessian");
    Values in, params, directions;
    for (size_t i = 0; i < x.size(); ++i) in.push_back(b.input(x[i].type, InputKind::batch, "x" + std::to_string(i)));
    for (size_t i : wrt) params.push_back(in[i]);
    Values d = grad(net.loss(in), params);
    if (second) {
      Value along;
      for (size_t k = 0; k < wrt.size(); ++k) {
        const Value term = sum_all(d[k] * b.input(x[wrt[k]].type, InputKind::batch, "v" + std::to_string(k)));
        along = along ? along + term : term;
      }
      d = grad(along, params);
    }
    for (size_t k = 0; k < d.size(); ++k) b.output(d[k], OutputKind::result, "d" + std::to_string(k));
    Graph g = autodiff(b.finish(), PassContext{});
    verify(g, Level::lowered, "autodiff");
    return g;
  };
  const Graph first = build(false), second = build(true);
  const auto flat = [](const std::vector<HostTensor>& tensors) {
    std::vector<double> all;
    for (const HostTensor& t : tensors) all.insert(all.end(), t.data.begin(), t.data.end());
    return all;
  };
  const auto gradient = [&](double by) { return flat(interpret(first, moved(x, v, by), Precision::exact)); };
  const auto want = central_difference(gradient, kSecondStep.h), got = flat(interpret(second, both, Precision::exact));
  ASSERT_EQ(want.size(), got.size());
  double norm = 0, error = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    norm = std::max(norm, std::abs(want[i]));
    error = std::max(error, std::abs(want[i] - got[i]));
  }
  EXPECT_GT(norm, 1e-3) << "the second derivative vanishes: nothing was tested";
  EXPECT_LT(error, kSecondStep.tolerance * norm);
}

SampleInput floats(Shape s, double lo = -1, double hi = 1) { return {{DType::f32, s}, lo, hi}; }
SampleInput labels(int64_t n, int64_t classes) { return {{DType::i32, {n}}, 0, static_cast<double>(classes - 1)}; }

TEST(SecondOrder, Mlp) {
  check_hessian({{floats({4, 5}), floats({5, 6}), floats({6}), floats({6, 3}), floats({4, 3})},
                 [](const Values& x) { return sum_all(square(matmul(tanh(matmul(x[0], x[1]) + x[2]), x[3]) - x[4])); }},
                1);
}

TEST(SecondOrder, ConvReluPool) {
  const Conv2dParams same{.pad_top = 1, .pad_bottom = 1, .pad_left = 1, .pad_right = 1};
  const PoolParams half{.kernel_h = 2, .kernel_w = 2, .stride_h = 2, .stride_w = 2};
  check_hessian({{floats({2, 6, 6, 2}), floats({3, 3, 3, 2}), floats({27, 4}), labels(2, 4)},
                 [=](const Values& x) {
                   const Value h = max_pool(relu(conv2d(x[0], x[1], same)), half);
                   return sum_all(cross_entropy(matmul(reshape(h, {2, 27}), x[2]), x[3]));
                 }},
                2);
}

TEST(SecondOrder, StridedGroupedConvAvgPool) {
  const Conv2dParams conv{.stride_h = 2, .stride_w = 1, .pad_top = 1, .pad_left = 2, .dilation_w = 2, .groups = 2};
  const PoolParams pool{.kernel_h = 2, .kernel_w = 3, .stride_h = 1, .stride_w = 2, .pad_top = 1, .pad_right = 1};
  check_hessian({{floats({1, 6, 7, 4}), floats({6, 3, 2, 2})},
                 [=](const Values& x) { return sum_all(square(avg_pool(tanh(conv2d(x[0], x[1], conv)), pool))); }},
                3);
}

TEST(SecondOrder, Softmax) {
  check_hessian(
      {{floats({3, 5}), floats({3, 5})}, [](const Values& x) { return sum_all(square(softmax(x[0]) * x[1])); }}, 4);
  check_hessian(
      {{floats({3, 5}), floats({3, 5})}, [](const Values& x) { return sum_all(square(log_softmax(x[0])) * x[1]); }}, 5);
}

TEST(SecondOrder, CrossEntropy) {
  for (double smoothing : {0.0, 0.1})
    check_hessian(
        {{floats({4, 3}), floats({3, 6}), labels(4, 6)},
         [=](const Values& x) { return sum_all(square(cross_entropy(matmul(x[0], x[1]), x[2], smoothing))); }},
        6);
}

TEST(SecondOrder, LayerNorm) {
  check_hessian({{floats({2, 3, 5}), floats({5}, 0.5, 1.5), floats({5})},
                 [](const Values& x) { return sum_all(square(tanh(layer_norm(x[0], x[1], x[2])))); }},
                7);
}

TEST(SecondOrder, BatchNorm) {
  check_hessian({{floats({2, 3, 2, 4}), floats({4}, 0.5, 1.5), floats({4})},
                 [](const Values& x) {
                   const BatchNormResult r = batch_norm(x[0], x[1], x[2]);
                   return sum_all(square(tanh(r.y))) + sum_all(square(r.mean) * r.var);
                 }},
                8);
}

TEST(SecondOrder, Attention) {
  for (bool causal : {false, true})
    check_hessian({{floats({1, 2, 4, 3}), floats({1, 2, 4, 3}), floats({1, 2, 4, 3})},
                   [=](const Values& x) { return sum_all(square(attention(x[0], x[1], x[2], causal))); }},
                  9);
}

TEST(SecondOrder, TransformerBlock) {
  check_hessian({{floats({1, 2, 3, 4}), floats({4, 4}), floats({4, 4}), floats({4}, 0.5, 1.5), floats({4})},
                 [](const Values& x) {
                   const Value h = reshape(layer_norm(x[0], x[3], x[4]), {6, 4});
                   const Value q = reshape(matmul(h, x[1]), {1, 2, 3, 4}), k = reshape(matmul(h, x[2]), {1, 2, 3, 4});
                   return sum_all(gelu(x[0] + attention(q, k, x[0], true)));
                 }},
                10);
}

// Where functions have no slope, or two operands are equal: what PyTorch takes.
TEST(Gradient, AtKinksAndTies) {
  const TensorType vec{DType::f32, {2}};
  const auto slopes = [&](double at, const std::function<Value(Value, Value)>& f) {
    Builder b("kink");
    const Value x[] = {b.input(vec, InputKind::param, "x"), b.input(vec, InputKind::param, "y")};
    const Values g = grad(sum_all(f(x[0], x[1])), x);
    for (size_t i = 0; i < 2; ++i) b.output(g[i], OutputKind::result, i == 0 ? "dx" : "dy");
    const auto out =
        interpret(autodiff(b.finish(), PassContext{}), {{vec, {at, at}}, {vec, {at, at}}}, Precision::rounded);
    return std::pair(out[0].data[1], out[1].data[1]);
  };
  using Pair = std::pair<double, double>;
  EXPECT_EQ(slopes(0, [](Value x, Value y) { return elu(x, 0.7) + y; }), Pair(static_cast<float>(0.7), 1));
  EXPECT_EQ(slopes(0, [](Value x, Value y) { return abs(x) + y; }), Pair(0, 1));
  EXPECT_EQ(slopes(3, [](Value x, Value y) { return maximum(x, y); }), Pair(0.5, 0.5));
  EXPECT_EQ(slopes(3, [](Value x, Value y) { return minimum(x, y); }), Pair(0.5, 0.5));
  EXPECT_EQ(slopes(2, [](Value x, Value y) { return pairwise_distance(x, y, 0); }), Pair(0, 0));
  const auto [focal, unused] = slopes(30, [](Value x, Value y) { return focal_loss(x, y / y, 0.25, 0.5); });
  EXPECT_NEAR(focal, 0, 1e-6);
}

// Third derivative of x^4 at x: 24 x. Nothing in the rules is special to the second order.
TEST(HigherOrder, ThirdDerivativeOfAPower) {
  Builder b("third");
  const Value x = b.input({DType::f64, {}}, InputKind::param, "x");
  Value y = square(square(x));
  for (int i = 0; i < 3; ++i) y = grad(y, std::span(&x, 1))[0];
  b.output(y, OutputKind::result, "y");
  const Graph g = autodiff(b.finish(), PassContext{});
  EXPECT_NEAR(interpret(g, {{{DType::f64, {}}, {1.5}}}, Precision::exact)[0].data[0], 36, 1e-12);
}

// MAML with two inner steps on L(w) = 1/2 sum a (w - t)^2, outer loss 1/2 sum b (w2 - s)^2. The inner map is linear per
// coordinate: w2 = t + (1 - r a)^2 (w - t), so d outer / d w = b (w2 - s) (1 - r a)^2 and, through the inner learning
// rate, d outer / d r = sum b (w2 - s) * -2 a (1 - r a) (w - t).
TEST(HigherOrder, MamlTwoStepsAgreesWithTheClosedForm) {
  constexpr int64_t n = 5;
  const TensorType vec{DType::f64, {n}}, one{DType::f64, {}};
  Builder b("maml");
  const Value w = b.input(vec, InputKind::param, "w"), rate = b.input(one, InputKind::param, "rate");
  const Value a = b.input(vec, InputKind::batch, "a"), t = b.input(vec, InputKind::batch, "t");
  const Value outer_weight = b.input(vec, InputKind::batch, "b"), s = b.input(vec, InputKind::batch, "s");
  Value fast = w;
  for (int step = 0; step < 2; ++step) {
    const Value inner = sum_all(a * square(fast - t)) * 0.5;
    fast = fast - rate * grad(inner, std::span(&fast, 1))[0];
  }
  const Value outer = sum_all(outer_weight * square(fast - s)) * 0.5;
  const Value wrt[] = {w, rate};
  const Values d = grad(outer, wrt);
  b.output(d[0], OutputKind::result, "dw");
  b.output(d[1], OutputKind::result, "drate");
  const Graph g = autodiff(b.finish(), PassContext{});
  verify(g, Level::lowered, "autodiff");

  const double r = 0.3;
  const auto vw = random_values(n, 1), va = random_values(n, 2, 0.2, 2), vt = random_values(n, 3),
             vb = random_values(n, 4, 0.2, 2), vs = random_values(n, 5);
  const auto got = interpret(g, {{vec, vw}, {one, {r}}, {vec, va}, {vec, vt}, {vec, vb}, {vec, vs}}, Precision::exact);
  double drate = 0;
  for (size_t i = 0; i < n; ++i) {
    const double shrink = 1 - r * va[i], w2 = vt[i] + shrink * shrink * (vw[i] - vt[i]), slope = vb[i] * (w2 - vs[i]);
    EXPECT_NEAR(got[0].data[i], slope * shrink * shrink, 1e-12);
    drate += slope * -2 * va[i] * shrink * (vw[i] - vt[i]);
  }
  EXPECT_NEAR(got[1].data[0], drate, 1e-12);
}

}  // namespace
}  // namespace lathe
