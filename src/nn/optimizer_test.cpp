#include "nn/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "ir/interpret.h"
#include "ir/verify.h"
#include "nn/optimizers/rules.h"

namespace lathe {
namespace {

using Doubles = std::vector<double>;

// One parameter on the f64 interpreter: gradients are given, the learning rate is 0.1.
struct Bench {
  explicit Bench(const OptimizerConfig& config, const Shape& shape, Doubles first, std::string name = "w",
                 const FileLayout& file = {})
      : numel(static_cast<size_t>(shape.numel())) {
    Builder b("optimizer");
    const StateSpec spec{name, {DType::f32, shape}, InputKind::param, Init::constant(0), file, {}};
    const Value p = b.input(spec.type, InputKind::param, name), g = b.input(spec.type, InputKind::batch, "g");
    const Value lr = b.input({DType::f32, {}}, InputKind::step, "lr");
    Optimizer o(b, config, {spec});
    o.update(0, p, g, lr);
    o.finish();
    for (const StateSpec& s : o.specs()) {
      EXPECT_TRUE(s.gated) << s.name;
      state[s.name] = Doubles(static_cast<size_t>(s.type.numel()), 0.0);
    }
    state[name] = std::move(first);
    graph = b.finish();
    verify(graph, Level::tensor);
    param = std::move(name);
  }

  const Doubles& step(const Doubles& gradient) {
    std::vector<HostTensor> in;
    for (const Input& i : graph.inputs) {
      Doubles v = state[i.name];
      if (i.name == "g") v = gradient;
      if (i.name == "lr") v = {0.1};
      in.push_back({graph.type(i.value), v});
    }
    const auto results = interpret(graph, in, precision);
    for (size_t k = 0; k < results.size(); ++k) state[graph.outputs[k].name] = results[k].data;
    return state[param];
  }

  size_t numel;
  Precision precision = Precision::exact;
  Graph graph;
  std::map<std::string, Doubles> state;
  std::string param;
};

// The same updates written as a loop over plain numbers, from the papers and PyTorch's documentation.
using Loop =
    std::function<void(const OptimizerConfig&, double t, Doubles& w, const Doubles& g, std::vector<Doubles>& s)>;

double norm(const Doubles& x) { return std::sqrt(std::inner_product(x.begin(), x.end(), x.begin(), 0.0)); }

const Shape kMatrix{2, 3};
const Doubles kFirst{1, -0.5, 0.25, 2, 0, -1};
const std::vector<Doubles> kGradients{{0.5, -1, 2, 0.25, 1e-3, -0.3},
                                      {-0.2, 0.1, 1, -0.25, 0.5, -0.3},
                                      {0.1, 0.1, -3, 0, 0.5, 0.7},
                                      {0.5, 0.4, 0.3, 0.2, 0.1, 0}};

// Each element by itself.
template <class F>
Loop each(F f) {
  return [f](const OptimizerConfig& c, double t, Doubles& w, const Doubles& g, std::vector<Doubles>& s) {
    for (size_t i = 0; i < w.size(); ++i) {
      std::array<double, 3> m{s[0][i], s[1][i], s[2][i]};
      w[i] = f(c, t, w[i], g[i], m);
      for (size_t k = 0; k < m.size(); ++k) s[k][i] = m[k];
    }
  };
}

using Moments = std::array<double, 3>;
constexpr double kLr = 0.1;

double momentum_of(const OptimizerConfig& c, double g, double& m) {
  m = c.momentum * m + g;
  return c.nesterov ? g + c.momentum * m : m;
}

double adam_of(const OptimizerConfig& c, double t, double g, Moments& m) {
  m[0] = c.beta1 * m[0] + (1 - c.beta1) * g;
  m[1] = c.beta2 * m[1] + (1 - c.beta2) * g * g;
  return m[0] / (1 - std::pow(c.beta1, t)) / (std::sqrt(m[1] / (1 - std::pow(c.beta2, t))) + c.eps);
}

const std::map<std::string, Loop> kLoops{
    {"sgd", each([](const OptimizerConfig& c, double, double w, double g, Moments& m) {
       return w - kLr * momentum_of(c, g + c.weight_decay * w, m[0]);
     })},
    {"sgdw", each([](const OptimizerConfig& c, double, double w, double g, Moments& m) {
       return w * (1 - kLr * c.weight_decay) - kLr * momentum_of(c, g, m[0]);
     })},
    {"adam", each([](const OptimizerConfig& c, double t, double w, double g, Moments& m) {
       return w - kLr * adam_of(c, t, g + c.weight_decay * w, m);
     })},
    {"adamw", each([](const OptimizerConfig& c, double t, double w, double g, Moments& m) {
       return w * (1 - kLr * c.weight_decay) - kLr * adam_of(c, t, g, m);
     })},
    {"adamax", each([](const OptimizerConfig& c, double t, double w, double g, Moments& m) {
       g += c.weight_decay * w;
       m[0] = c.beta1 * m[0] + (1 - c.beta1) * g;
       m[1] = std::max(c.beta2 * m[1], std::fabs(g) + c.eps);
       return w - kLr / (1 - std::pow(c.beta1, t)) * m[0] / m[1];
     })},
    {"radam", each([](const OptimizerConfig& c, double t, double w, double g, Moments& m) {
       g += c.weight_decay * w;
       m[0] = c.beta1 * m[0] + (1 - c.beta1) * g;
       m[1] = c.beta2 * m[1] + (1 - c.beta2) * g * g;
       const double power = std::pow(c.beta2, t), limit = 2 / (1 - c.beta2) - 1;
       const double rho = limit - 2 * t * power / (1 - power);
       const double step = kLr * m[0] / (1 - std::pow(c.beta1, t));
       if (rho <= 5) return w - step;
       const double r = std::sqrt((rho - 4) * (rho - 2) * limit / ((limit - 4) * (limit - 2) * rho));
       return w - step * r * std::sqrt(1 - power) / (std::sqrt(m[1]) + c.eps);
     })},
    {"rmsprop", each([](const OptimizerConfig& c, double, double w, double g, Moments& m) {
       g += c.weight_decay * w;
       m[0] = c.beta2 * m[0] + (1 - c.beta2) * g * g;
       m[1] = c.beta2 * m[1] + (1 - c.beta2) * g;
       const double root = std::sqrt(m[0] - (c.centered ? m[1] * m[1] : 0));
       m[2] = c.momentum * m[2] + g / (root + c.eps);
       return w - kLr * m[2];
     })},
    {"adagrad", each([](const OptimizerConfig& c, double, double w, double g, Moments& m) {
       g += c.weight_decay * w;
       m[0] += g * g;
       return w - kLr * g / (std::sqrt(m[0]) + c.eps);
     })},
    {"lion", each([](const OptimizerConfig& c, double, double w, double g, Moments& m) {
       const double mix = c.beta1 * m[0] + (1 - c.beta1) * g;
       m[0] = c.beta2 * m[0] + (1 - c.beta2) * g;
       return w * (1 - kLr * c.weight_decay) - kLr * (mix > 0 ? 1 : mix < 0 ? -1 : 0);
     })},
    {"lars",
     [](const OptimizerConfig& c, double, Doubles& w, const Doubles& g, std::vector<Doubles>& s) {
       const double ratio = c.trust * norm(w) / (norm(g) + c.weight_decay * norm(w));
       for (size_t i = 0; i < w.size(); ++i)
         w[i] -= kLr * momentum_of(c, ratio * (g[i] + c.weight_decay * w[i]), s[0][i]);
     }},
    {"lamb",
     [](const OptimizerConfig& c, double t, Doubles& w, const Doubles& g, std::vector<Doubles>& s) {
       Doubles d(w.size());
       for (size_t i = 0; i < w.size(); ++i) {
         Moments m{s[0][i], s[1][i], 0};
         d[i] = adam_of(c, t, g[i], m) + c.weight_decay * w[i];
         s[0][i] = m[0], s[1][i] = m[1];
       }
       const double ratio = norm(w) / norm(d);
       for (size_t i = 0; i < w.size(); ++i) w[i] -= kLr * ratio * d[i];
     }},
    {"adafactor",
     [](const OptimizerConfig& c, double t, Doubles& w, const Doubles& g, std::vector<Doubles>& s) {
       // s[0]: rows, s[1]: columns of the 2 x 3 matrix.
       const double fresh = std::pow(t, -c.decay_rate);
       double mean_row = 0;
       for (size_t r = 0; r < 2; ++r) {
         double sum = 0;
         for (size_t k = 0; k < 3; ++k) sum += g[3 * r + k] * g[3 * r + k];
         s[0][r] += (sum / 3 - s[0][r]) * fresh;
         mean_row += s[0][r] / 2;
       }
       for (size_t k = 0; k < 3; ++k) {
         const double mean = (g[k] * g[k] + g[3 + k] * g[3 + k]) / 2;
         s[1][k] += (mean - s[1][k]) * fresh;
       }
       Doubles d(6);
       for (size_t i = 0; i < 6; ++i) d[i] = g[i] / std::sqrt(s[0][i / 3] * s[1][i % 3] / mean_row);
       const double root = std::sqrt(6.0);
       const double rate = std::min(kLr, 1 / std::sqrt(t)) * std::max(1e-3, norm(w) / root);
       const double length = std::max(1.0, norm(d) / root);
       for (size_t i = 0; i < 6; ++i) w[i] = w[i] * (1 - kLr * c.weight_decay) - rate / length * d[i];
     }},
};

OptimizerConfig config_of(const OptimizerRule& rule) {
  OptimizerConfig c;
  c.name = rule.name;
  const OptimizerKeys& k = rule.keys;
  c.momentum = k.momentum.value_or(0);
  c.nesterov = k.nesterov.value_or(false);
  c.beta1 = k.beta1.value_or(c.beta1);
  c.beta2 = k.beta2.value_or(c.beta2);
  c.eps = k.eps.value_or(c.eps);
  c.decay_rate = k.decay_rate.value_or(c.decay_rate);
  c.trust = k.trust.value_or(c.trust);
  c.centered = k.centered.value_or(false);
  return c;
}

// Configurations of a rule: its own, with decay, and each switch on.
std::vector<OptimizerConfig> variants(const OptimizerRule& rule) {
  std::vector<OptimizerConfig> out{config_of(rule), config_of(rule)};
  out[1].weight_decay = 0.05;
  if (rule.keys.nesterov) {
    out.push_back(out[1]);
    out.back().nesterov = !out.back().nesterov;
  }
  if (rule.keys.centered) {
    out.push_back(out[1]);
    out.back().centered = true;
    out.back().momentum = 0.8;
  }
  return out;
}

TEST(Optimizer, EveryRuleFollowsItsFormula) {
  for (const OptimizerRule& rule : kOptimizerRules) {
    if (rule.name == "muon") continue;  // below
    ASSERT_TRUE(kLoops.count(std::string(rule.name))) << rule.name << " has no formula here";
    for (const OptimizerConfig& c : variants(rule)) {
      Bench bench(c, kMatrix, kFirst);
      Doubles w = kFirst;
      std::vector<Doubles> s(3, Doubles(6, 0.0));
      double t = 0;
      for (const Doubles& g : kGradients) {
        kLoops.at(c.name)(c, ++t, w, g, s);
        const Doubles& actual = bench.step(g);
        // 1e-7: eps and the fixed constants are f32 in the graph's constants.
        for (size_t i = 0; i < w.size(); ++i) EXPECT_NEAR(actual[i], w[i], 1e-7) << c.name << " step " << t;
      }
    }
  }
}

// The number of gradients that the mean square rests on, in both of its forms and in f32.
TEST(Optimizer, RadamRectifiesAtAnyStep) {
  for (const double beta2 : {0.5, 0.9, 0.99, 0.999, 0.99999})
    for (const Precision precision : {Precision::exact, Precision::rounded}) {
      OptimizerConfig c = config_of(*find_optimizer("radam"));
      c.beta2 = beta2;
      Bench bench(c, kMatrix, kFirst);
      bench.precision = precision;
      for (const double t : {1.0, 2.0, 5.0, 6.0, 7.0, 20.0, 100.0, 999.0, 1001.0, 1386.0, 2e4, 1e6}) {
        Doubles w = kFirst;
        std::vector<Doubles> s(3, Doubles(6, 0.0));
        bench.state["w"] = w;
        bench.state["w.exp_avg"] = bench.state["w.exp_avg_sq"] = Doubles(6, 0.0);
        bench.state["optimizer.step"] = {t - 1};
        kLoops.at("radam")(c, t, w, kGradients[0], s);
        const Doubles& actual = bench.step(kGradients[0]);
        const double tolerance = precision == Precision::exact ? 1e-6 : 2e-5;
        for (size_t i = 0; i < w.size(); ++i)
          EXPECT_NEAR(actual[i] - kFirst[i], w[i] - kFirst[i], tolerance * std::max(1.0, std::fabs(w[i] - kFirst[i])))
              << beta2 << " step " << t;
      }
    }
}

// Rows and columns are PyTorch's last two axes: here of a kernel of one input and one output channel (OHWI in memory),
// and of a dense layer over an image (its columns are three axes of memory).
TEST(Optimizer, AdafactorFactorsTheLastAxesOfFiles) {
  const OptimizerConfig c = config_of(*find_optimizer("adafactor"));
  Bench matrix(c, kMatrix, kFirst);
  Bench kernel(c, {1, 2, 3, 1}, kFirst, "w", {{1, 2, 3, 1}, {0, 3, 1, 2}, {1, 1, 2, 3}});
  Bench dense(c, kMatrix, kFirst, "w", {{2, 1, 3, 1}, {0, 3, 1, 2}, {2, 3}});
  for (const Doubles& g : kGradients) {
    const Doubles& expected = matrix.step(g);
    EXPECT_EQ(kernel.step(g), expected);
    EXPECT_EQ(dense.step(g), expected);
  }
  EXPECT_EQ(kernel.state.at("w.row_var"), matrix.state.at("w.row_var"));
  EXPECT_EQ(kernel.state.at("w.col_var"), matrix.state.at("w.col_var"));
  // Four kernels have four rows and columns each, not four in common.
  Bench kernels(c, {2, 3, 3, 2}, Doubles(36, 0.5), "w", {{2, 3, 3, 2}, {0, 3, 1, 2}, {2, 2, 3, 3}});
  EXPECT_EQ(kernels.state.at("w.row_var").size(), 12u);
  EXPECT_EQ(kernels.state.at("w.col_var").size(), 12u);
}

// Singular values of the step are near 1 whatever the gradient's are, times the scale; its signs are the gradient's.
TEST(Optimizer, MuonMakesStepsOrthogonal) {
  for (const auto& [rows, columns] : {std::pair{2, 3}, {3, 2}, {1, 6}}) {
    OptimizerConfig c = config_of(*find_optimizer("muon"));
    const Shape shape{rows, columns};
    Bench bench(c, shape, Doubles(6, 0.0));
    const Doubles& w = bench.step({3, 0.1, -2, 0.2, 1, 0.5});
    const auto at = [&w, width = columns](int r, int k) { return w[static_cast<size_t>(r * width + k)]; };
    // Gram matrix over the shorter side: near scale^2 times the identity.
    const double scale = kLr * 0.2 * std::sqrt(std::max(rows, columns));
    const int n = std::min(rows, columns);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        double dot = 0;
        for (int k = 0; k < std::max(rows, columns); ++k)
          dot += rows < columns ? at(i, k) * at(j, k) : at(k, i) * at(k, j);
        EXPECT_NEAR(dot / (scale * scale), i == j ? 1 : 0, 0.55) << rows << " x " << columns;
      }
  }
  // Vectors and embeddings take AdamW's step.
  const OptimizerConfig muon = config_of(*find_optimizer("muon"));
  OptimizerConfig adamw = muon;
  adamw.name = "adamw";
  Bench a(muon, {6}, kFirst), b(adamw, {6}, kFirst);
  for (const Doubles& g : kGradients) EXPECT_EQ(a.step(g), b.step(g));
}

// Two optimizers of one graph, or of one set, must not share their count of steps.
TEST(Optimizer, ScopesKeepOptimizersApart) {
  const auto step = [](const char* graph, const char* param, const char* scope) {
    Builder b(graph);
    StateSpec spec{param, {DType::f32, {2}}, InputKind::param, Init::constant(0), {}};
    const Value p = b.input(spec.type, InputKind::param, param), g = b.input(spec.type, InputKind::batch, "g");
    Optimizer o(b, {.name = "adam"}, {spec}, scope);
    o.update(0, p, g, b.input({DType::f32, {}}, InputKind::step, "lr"));
    o.finish();
    StepSet s;
    s.state.add(spec);
    for (const StateSpec& row : o.specs()) s.state.add(row);
    s.graphs.push_back(b.finish());
    return s;
  };
  StepSet apart = step("a", "x", "first");
  merge(apart, step("b", "y", "second"));
  verify(apart, Level::tensor);
  EXPECT_TRUE(apart.state.find("first.optimizer.step") && apart.state.find("second.optimizer.step"));
  StepSet shared = step("a", "x", "");
  EXPECT_NO_THROW(merge(shared, step("a_tail", "x", "")));  // the same optimizer in another graph
  try {
    merge(shared, step("b", "y", ""));
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find("optimizer.step"), std::string::npos) << e.what();
  }
}

// Two optimizers of one parameter share nothing, and the same one in two graphs shares all.
TEST(Optimizer, StateHasOneOwner) {
  using Names = std::vector<std::string>;
  const auto step = [](const char* graph, const OptimizerConfig& config, const char* scope, const Names& params) {
    Builder b(graph);
    StepSet s;
    Values values;
    std::vector<StateSpec> specs;
    for (const std::string& name : params) {
      specs.push_back({name, {DType::f32, {2}}, InputKind::param, Init::constant(0), {}});
      values.push_back(b.input(specs.back().type, InputKind::param, name));
      s.state.add(specs.back());
    }
    const Value g = b.input({DType::f32, {2}}, InputKind::batch, "g"),
                lr = b.input({DType::f32, {}}, InputKind::step, "lr");
    Optimizer o(b, config, specs, scope);
    for (size_t i = 0; i < values.size(); ++i) o.update(i, values[i], g, lr);
    o.finish();
    for (const StateSpec& row : o.specs()) s.state.add(row);
    s.graphs.push_back(b.finish());
    return s;
  };
  const OptimizerConfig adam{.name = "adam"}, other{.name = "adam", .beta1 = 0.5}, adamw{.name = "adamw"},
      slow{.name = "sgd", .momentum = 0.9}, fast{.name = "sgd", .momentum = 0.1};
  StepSet same = step("a", adam, "", {"x", "y"});
  merge(same, step("a_tail", adam, "", {"x", "y"}));
  EXPECT_EQ(same.state.size(), 2 + 2 * 2 + 1u);
  for (const OptimizerConfig& second : {adam, other}) {
    StepSet apart = step("a", adam, "first", {"x"});
    merge(apart, step("b", second, "second", {"x"}));
    verify(apart, Level::tensor);
    EXPECT_TRUE(apart.state.find("x.first.exp_avg") && apart.state.find("x.second.exp_avg"));
  }
  const std::tuple<OptimizerConfig, OptimizerConfig, Names> clashes[] = {
      {adam, other, {"x"}}, {adam, adamw, {"x"}}, {adam, adam, {"x", "y"}}, {slow, fast, {"x"}}};
  for (const auto& [first, second, params] : clashes) {
    StepSet set = step("a", first, "", {"x"});
    try {
      merge(set, step("b", second, "", params));
      ADD_FAILURE() << first.name << " and " << second.name;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("the optimizer that it belongs to is"), std::string::npos) << e.what();
    }
  }
}

TEST(Optimizer, GroupsScaleAndDecay) {
  const OptimizerConfig c{.name = "sgdw",
                          .weight_decay = 0.5,
                          .groups = {ParamGroup{{"*.bias"}, 2, {}, false}, ParamGroup{{"ln*", "x?.w"}, 1, 0.25, false},
                                     ParamGroup{{"*"}, 3, 0.0, false}}};
  const auto after = [&](const char* name, const Shape& shape) {
    return Bench(c, shape, Doubles{2, 4}, name).step({1, 1});
  };
  const auto near = [](const Doubles& a, const Doubles& b) {
    EXPECT_NEAR(a[0], b[0], 1e-7);
    EXPECT_NEAR(a[1], b[1], 1e-7);
  };
  near(after("fc.bias", {2}), {2 - 0.2, 4 - 0.2});  // vectors do not decay
  near(after("fc.bias", {1, 2}),
       {2 * (1 - 0.2 * 0.5) - 0.2, 4 * (1 - 0.2 * 0.5) - 0.2});                        // decay with the group's rate
  near(after("ln_1", {2}), {2 * (1 - 0.1 * 0.25) - 0.1, 4 * (1 - 0.1 * 0.25) - 0.1});  // unless a group says so
  near(after("x1.w", {2}), {2 * (1 - 0.1 * 0.25) - 0.1, 4 * (1 - 0.1 * 0.25) - 0.1});
  near(after("fc.weight", {1, 2}), {2 - 0.3, 4 - 0.3});
}

TEST(ParamGroups, Globs) {
  const std::tuple<const char*, const char*, bool> table[] = {{"*", "", true},
                                                              {"*", "a.b", true},
                                                              {"a.*", "a.b", true},
                                                              {"a.*", "ab", false},
                                                              {"*.bias", "a.bias", true},
                                                              {"*.bias", "bias", false},
                                                              {"*.bias", "a.bias2", false},
                                                              {"a?c", "abc", true},
                                                              {"a?c", "ac", false},
                                                              {"*a*b*", "xaybz", true},
                                                              {"*a*b*", "xbya", false},
                                                              {"", "", true},
                                                              {"", "a", false},
                                                              {"**", "a", true},
                                                              {"a", "a", true},
                                                              {"*ab", "aab", true}};
  for (const auto& [pattern, name, expected] : table)
    EXPECT_EQ(glob_match(pattern, name), expected) << pattern << " " << name;
  const std::vector<std::string> names{"a.weight", "a.bias"};
  EXPECT_FALSE(find_useless_pattern({ParamGroup{{"*.bias"}, 1, {}, true}, ParamGroup{{"*"}, 1, {}, false}}, names));
  const auto nothing = find_useless_pattern({ParamGroup{{"*.bias", "*.bis"}, 1, {}, true}}, names);
  ASSERT_TRUE(nothing);
  EXPECT_EQ(nothing->pattern, 1u);
  EXPECT_NE(nothing->reason.find("\"*.bis\" matches no parameter; there are: a.weight, a.bias"), std::string::npos);
  const auto taken =
      find_useless_pattern({ParamGroup{{"*"}, 1, {}, false}, ParamGroup{{"*.bias"}, 1, {}, true}}, names);
  ASSERT_TRUE(taken);
  EXPECT_EQ(taken->group, 1u);
  EXPECT_NE(taken->reason.find("earlier groups"), std::string::npos);
}

}  // namespace
}  // namespace lathe
