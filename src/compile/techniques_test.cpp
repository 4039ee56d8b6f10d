// Techniques at work, each against a formula of its own, with every optimizer where that matters.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "ir/interpret.h"
#include "nn/optimizers/rules.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/gradient.h"
#include "ops/reduce.h"
#include "passes/precision.h"
#include "passes/techniques/table.h"

namespace lathe {
namespace {

using Doubles = std::vector<double>;
constexpr double kLr = 0.1;

// Two parameters, u and v of `shape` each, whose gradients are the batch inputs gu and gv: the loss is u gu + v gv, and
// `square` adds half of the squares of both, with dropout on them. A buffer holds the last gu[0]. Training has two
// graphs, "train" and "train_tail", which differ in their names alone: techniques treat both.
struct Bench {
  explicit Bench(const PassOptions& options, const OptimizerConfig& config = {.name = "sgd"}, double square = 0,
                 double rate = 0, const Shape& shape = {3}) {
    StepSet set;
    const TensorType type{DType::f32, shape};
    for (const char* name : {"train", "train_tail"}) merge(set, training(name, type, config, square, rate));
    Builder b("eval");
    b.output(sum_all(b.input(type, InputKind::param, "u")), OutputKind::result, "sum");
    set.graphs.push_back(b.finish());
    PassContext context;
    context.options = options;
    steps = run_pipeline(std::move(set), context);
    for (const StateSpec& s : steps.state)
      state[s.name] =
          Doubles(static_cast<size_t>(s.type.numel()), s.init.kind == Init::Kind::constant ? s.init.value : 0);
  }

  static StepSet training(const std::string& name, const TensorType& type, const OptimizerConfig& config, double square,
                          double rate) {
    StepSet set;
    Builder b(name);
    std::vector<StateSpec> specs;
    Values params, given;
    for (const char* param : {"u", "v"}) {
      StateSpec s{param, type, InputKind::param, Init::constant(1), {}};
      s.gated = true;
      specs.push_back(s);
      set.state.add(s);
      params.push_back(b.input(type, InputKind::param, param));
      given.push_back(b.input(type, InputKind::batch, std::string("g") + param));
    }
    StateSpec last{"last", type, InputKind::buffer, Init::constant(0), {}};
    last.gated = true;
    set.state.add(last);
    const Value buffer = b.input(type, InputKind::buffer, "last");
    Value loss = sum_all(params[0] * given[0]) + sum_all(params[1] * given[1]);
    if (square > 0) {
      Value squares = lathe::square(params[0]) + lathe::square(params[1]);
      if (rate > 0)
        squares = dropout(squares, b.input({DType::i64, {2}}, InputKind::step, "key"),
                          b.input({DType::i64, {3}}, InputKind::batch, "index"), rate, 5);
      loss = loss + sum_all(squares) * (square / 2);
    }
    Values g = grad(loss, params);
    const Origin origin(b, "update", Role::update);
    for (size_t i = 0; i < 2; ++i) g[i] = gradient(g[i], specs[i].name);
    const Value lr = b.input({DType::f32, {}}, InputKind::step, "lr");
    Optimizer o(b, config, specs);
    for (size_t i = 0; i < 2; ++i) o.update(i, params[i], g[i], lr);
    o.finish();
    for (const StateSpec& s : o.specs()) set.state.add(s);
    b.set_role(Role::model);
    b.update(buffer, given[0] * 1.0);
    b.output(loss, OutputKind::metric, "loss");
    set.graphs.push_back(b.finish());
    return set;
  }

  void run(const std::string& name, const std::map<std::string, Doubles>& inputs) {
    const Graph* g = steps.find_graph(name);
    ASSERT_TRUE(g) << name;
    std::vector<HostTensor> in;
    for (const Input& i : g->inputs) {
      Doubles v = is_state(i.kind) ? state.at(i.name) : i.name == "lr" ? Doubles{kLr} : inputs.at(i.name);
      in.push_back({g->type(i.value), std::move(v)});
    }
    const auto results = interpret(*g, in, Precision::exact);
    for (size_t k = 0; k < results.size(); ++k)
      (g->outputs[k].kind == OutputKind::state ? state : shown)[g->outputs[k].name] = results[k].data;
  }
  void step(const Doubles& gu, const Doubles& gv, const std::map<std::string, Doubles>& more = {}) {
    std::map<std::string, Doubles> inputs = more;
    inputs["gu"] = gu;
    inputs["gv"] = gv;
    // Every other step is one of a tail batch.
    run(steps_++ % 2 ? "train_tail" : "train", inputs);
  }

  StepSet steps;
  std::map<std::string, Doubles> state, shown;

 private:
  int64_t steps_ = 0;
};

void expect_near(const Doubles& a, const Doubles& b, double tolerance = 1e-7) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance) << i;
}

const Doubles kU{0.5, -3, 1}, kV{2, 0, -1};

TEST(Techniques, ClipValue) {
  Bench bench(PassOptions().set(ClipValueOptions{0.8}));
  bench.step(kU, kV);
  expect_near(bench.state["u"], {1 - 0.05, 1 + 0.08, 1 - 0.08});
  expect_near(bench.state["v"], {1 - 0.08, 1, 1 + 0.08});
  EXPECT_NEAR(bench.shown["grad_norm"][0], std::sqrt(0.25 + 4 * 0.64), 1e-7);  // of what was clipped
  bench.step(kU, kV);
  expect_near(bench.state["u"], {1 - 0.1, 1 + 0.16, 1 - 0.16});
}

// Of a convolution with 2 outputs, [2, 1, 2, 3]: each loses the mean of its 6 elements; then gradients are clipped.
TEST(Techniques, CentralizeSubtractsTheMeanOfEachOutput) {
  const PassOptions options = PassOptions().set(CentralizeOptions{true}).set(ClipValueOptions{3});
  const Doubles g{1, 2, 3, 4, 5, 9, -1, 0, 0, 0, 0, -5}, mean{4, -1};
  Bench bench(options, {.name = "sgd"}, 0, 0, {2, 1, 2, 3});
  bench.step(g, g);
  bench.step(g, g);  // of the tail
  Doubles expected;
  for (size_t i = 0; i < g.size(); ++i) expected.push_back(1 - 2 * kLr * std::clamp(g[i] - mean[i / 6], -3.0, 3.0));
  expect_near(bench.state["u"], expected);
  Bench vectors(options);  // without a mean over inputs
  vectors.step({0.5, 1, 2}, kV);
  expect_near(vectors.state["u"], {1 - kLr * 0.5, 1 - kLr, 1 - kLr * 2});
}

TEST(Techniques, ClipNorm) {
  Bench bench(PassOptions().set(ClipNormOptions{2}));
  bench.step(kU, kV);
  const double norm = std::sqrt(0.25 + 9 + 1 + 4 + 1), f = 2 / (norm + 1e-6);
  expect_near(bench.state["u"], {1 - kLr * 0.5 * f, 1 + kLr * 3 * f, 1 - kLr * f});
  expect_near(bench.state["v"], {1 - kLr * 2 * f, 1, 1 + kLr * f});
  EXPECT_NEAR(bench.shown["grad_norm"][0], norm, 1e-7);  // of what came
  bench.step(kU, kV);
  EXPECT_NEAR(bench.state["u"][0], 1 - 2 * kLr * 0.5 * f, 1e-7);
  bench.step({0.1, 0, 0}, {0, 0, 0});  // short ones stay as they are
  EXPECT_NEAR(bench.state["u"][0], 1 - 2 * kLr * 0.5 * f - 0.01, 1e-7);
}

TEST(Techniques, LookaheadMovesSlowWeights) {
  Bench bench(PassOptions().set(LookaheadOptions{2}));
  double fast = 1, slow = 1;
  for (int t = 0; t < 6; ++t) {
    const double g = 0.3 * t - 0.5, share = t % 2 ? 0.5 : 0;
    fast -= kLr * g;
    if (share > 0) fast = slow += share * (fast - slow);
    bench.step({g, 0, 0}, {0, 0, 0}, {{"lookahead", {share}}});
    EXPECT_NEAR(bench.state["u"][0], fast, 1e-8);
    EXPECT_NEAR(bench.state["u.slow"][0], slow, 1e-8);
  }
  EXPECT_EQ(bench.steps.state.find("u.slow")->like, "u");
}

// After all: one flag. At the gradient: each tensor has its own, and the loss's.
TEST(Techniques, RefusedStepsLeaveNoTrace) {
  for (const OptimizerRule& rule : kOptimizerRules) {
    OptimizerConfig c{.name = std::string(rule.name), .weight_decay = 0.05};
    if (rule.keys.momentum) c.momentum = 0.9;
    PassOptions options = PassOptions().set(LookaheadOptions{2}).set(AverageOptions{0.9});
    Bench one(options, c), other(options, c);
    const std::map<std::string, Doubles> shares{{"lookahead", {0.5}}, {"average", {0.25}}};
    one.step(kU, kV, shares);
    other.step(kU, kV, shares);
    const auto before = other.state;
    std::map<std::string, Doubles> none = shares;
    none["average"] = {0};
    other.step({NAN, 1, 1}, kV, none);
    EXPECT_EQ(other.shown["accepted"][0], 0) << rule.name;
    EXPECT_EQ(other.state, before) << rule.name;
    one.step(kV, kU, shares);
    other.step(kV, kU, shares);
    EXPECT_EQ(other.shown["accepted"][0], 1) << rule.name;
    EXPECT_EQ(one.state, other.state) << rule.name;
  }
}

TEST(Techniques, GatesAtTheGradient) {
  Bench bench(PassOptions().set(GateOptions{.update = "at_gradient"}), {.name = "adam"});
  // The gradient of v overflows when it is squared, the loss is finite: u is updated, v and the count are not.
  bench.step(kU, {1e200, 0, 0});
  EXPECT_EQ(bench.shown["accepted"][0], 0);
  EXPECT_NE(bench.state["u"][0], 1);
  EXPECT_EQ(bench.state["v"], (Doubles{1, 1, 1}));
  EXPECT_EQ(bench.state["optimizer.step"][0], 0);
  EXPECT_EQ(bench.state["last"], kU);  // running statistics take the loss's flag
  // A loss that is not finite refuses all.
  const auto before = bench.state;
  bench.step({INFINITY, 0, 0}, kV);
  EXPECT_EQ(bench.state, before);
  bench.step(kU, kV);
  EXPECT_EQ(bench.shown["accepted"][0], 1);
  EXPECT_EQ(bench.state["optimizer.step"][0], 1);
}

TEST(Techniques, LossScaleAdapts) {
  Bench bench(PassOptions().set(LossScaleOptions{8, 2}).set(PrecisionOptions{"f16"})), plain(PassOptions{});
  double scale = 8;
  int streak = 0;
  for (const double g : Doubles{1, 2, NAN, 1, 1, 1, NAN}) {
    bench.step({g, 0, 0}, kV);
    plain.step({g, 0, 0}, kV);
    EXPECT_EQ(bench.shown["gradient_scale"][0], scale);
    if (std::isnan(g)) {
      scale = std::max(1.0, scale / 2);
      streak = 0;
    } else if (++streak == 2) {
      scale *= 2;
      streak = 0;
    }
    EXPECT_EQ(bench.state["gradient_scale"][0], scale);
    EXPECT_EQ(bench.state["gradient_scale.streak"][0], streak);
    EXPECT_EQ(bench.state["u"], plain.state["u"]);  // a power of two changes no bit
  }
}

TEST(Techniques, AveragesAreReadByEvaluation) {
  Bench bench(PassOptions().set(AverageOptions{0.9}));
  double w = 1, average = 1, last = 0;
  for (const double share : {1.0, 0.5, 0.25}) {
    bench.step(kU, kV, {{"average", {share}}});
    w -= kLr * kU[1];
    average = average * (1 - share) + w * share;
    last = last * (1 - share) + kU[0] * share;
    EXPECT_NEAR(bench.state["average.u"][1], average, 1e-9);
    EXPECT_NEAR(bench.state["average.last"][0], last, 1e-9);
  }
  bench.run("eval", {});
  const Doubles& u = bench.state["average.u"];
  EXPECT_NEAR(bench.shown["sum"][0], u[0] + u[1] + u[2], 1e-9);
  const StateSpec* row = bench.steps.state.find("average.u");
  ASSERT_TRUE(row);
  EXPECT_EQ(row->file_name(), "u");
  EXPECT_EQ(row->saved_in, StateFile::average);
}

TEST(Techniques, AccumulatedGradientsAreAppliedOnce) {
  const OptimizerConfig adam{.name = "adam"};
  Bench parts(PassOptions().set(AccumulateOptions{2}).set(ClipNormOptions{2}), adam),
      whole(PassOptions().set(ClipNormOptions{2}), adam);
  for (int i = 0; i < 3; ++i) {
    parts.run("accumulate", {{"gu", {0.5, -1, 0}}, {"gv", {1, 0, -0.5}}});
    EXPECT_EQ(parts.state["last"], (Doubles{0.5, -1, 0}));
    parts.run("accumulate_tail", {{"gu", {0, -2, 1}}, {"gv", {1, 0, -0.5}}});
    parts.run("update", {});
    whole.step(kU, kV);
    for (const char* name : {"u", "v", "u.exp_avg", "u.exp_avg_sq", "optimizer.step"})
      expect_near(parts.state[name], whole.state[name], 1e-12);
    EXPECT_NEAR(parts.shown["grad_norm"][0], whole.shown["grad_norm"][0], 1e-12);
    EXPECT_EQ(parts.state["u.grad"], (Doubles{0, 0, 0}));
  }
  EXPECT_FALSE(parts.steps.find_graph("train"));
  EXPECT_EQ(parts.steps.state.find("u.grad")->saved_in, StateFile::none);
}

// With the loss g w + k w^2 / 2 the gradient there is g + k w + k rho (g + k w) / |g + k w|, where k is what dropout
// makes of 1: 0 or 1 / (1 - rate), the same at both places.
TEST(Techniques, SamTakesTheGradientUphill) {
  const double rho = 0.3, rate = 0.5;
  for (const bool drops : {false, true}) {
    Bench bench(PassOptions().set(SamOptions{rho}), {.name = "sgd"}, 1, drops ? rate : 0);
    std::map<std::string, Doubles> random{{"index", {0, 1, 2}}};
    Doubles k;
    // A key that drops some elements and keeps others.
    for (double key = 0; key < 100; ++key) {
      Bench plain({}, {.name = "sgd"}, 1, drops ? rate : 0);
      random["key"] = {key, 3};
      plain.step({0, 0, 0}, {0, 0, 0}, random);  // of weights 1 the gradient is k
      k.clear();
      for (const double w : plain.state["u"]) k.push_back(std::round((1 - w) / kLr));
      if (!drops || (std::ranges::count(k, 0.0) > 0 && std::ranges::count(k, 2.0) > 0)) break;
    }
    ASSERT_TRUE(!drops || std::ranges::count(k, 0.0) * std::ranges::count(k, 2.0) == 2) << "of three, one or two";
    Doubles u(3, 1), v(3, 1);
    for (int t = 0; t < 2; ++t) {
      bench.step(kU, kV, random);
      Doubles g;
      for (size_t i = 0; i < 3; ++i) g.push_back(kU[i] + k[i] * u[i]);
      for (size_t i = 0; i < 3; ++i) g.push_back(kV[i] + k[i] * v[i]);
      double length = 0;
      for (const double x : g) length += x * x;
      length = std::sqrt(length);
      for (size_t i = 0; i < 3; ++i) {
        u[i] -= kLr * (g[i] + k[i] * rho * g[i] / length);
        v[i] -= kLr * (g[i + 3] + k[i] * rho * g[i + 3] / length);
      }
      expect_near(bench.state["u"], u);
      expect_near(bench.state["v"], v);
    }
  }
}

}  // namespace
}  // namespace lathe
