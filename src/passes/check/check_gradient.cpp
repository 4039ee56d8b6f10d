#include "passes/check/check_gradient.h"

#include <cmath>

#include "base/philox.h"
#include "ir/builder.h"
#include "ir/interpret.h"
#include "ir/verify.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/reduce.h"
#include "ops/sample.h"
#include "passes/autodiff.h"

namespace lathe {
namespace {

// The truncation error is O(h^4), the rounding error about 1e-16 / h.
struct DifferenceStep {
  double h, tolerance;
};
constexpr DifferenceStep kDifferenceSteps[] = {{1e-4, 1e-9}, {1e-6, 1e-7}};

std::vector<double> random_direction(size_t n, uint64_t seed) {
  const CounterRng rng(seed, 77, 0, 0);
  std::vector<double> out(n);
  for (size_t i = 0; i < n; ++i) out[i] = -1 + 2 * static_cast<double>(rng.uniform(i));
  return out;
}

// L over the sample's inputs and the weights c; the gradients by all float inputs of the sample.
struct CheckedGraphs {
  Graph loss, gradients;
  std::vector<size_t> wrt;         // positions of the float inputs
  std::vector<HostTensor> inputs;  // of both graphs
};

CheckedGraphs checked_graphs(const OpDef& op, const Sample& s, uint64_t seed) {
  CheckedGraphs out;
  const auto build = [&](bool with_gradients) {
    Builder b("check");
    Values x;
    for (size_t i = 0; i < s.inputs.size(); ++i)
      x.push_back(b.input(s.inputs[i].type, InputKind::batch, "x" + std::to_string(i)));
    Value loss;
    std::vector<HostTensor> weights;
    for (const Value& y : b.add(op, x, s.params)) {
      if (!is_float(y.dtype())) continue;
      const Value c = b.input(y.type(), InputKind::batch, "c" + std::to_string(weights.size()));
      weights.push_back(
          {y.type(), random_direction(static_cast<size_t>(y.type().numel()), seed + 100 + weights.size())});
      const Value term = sum_all(c * y);
      loss = loss ? loss + term : term;
    }
    if (loss && !with_gradients) {
      b.output(loss, OutputKind::result, "loss");
      out.inputs = sample_inputs(s, seed);
      out.inputs.insert(out.inputs.end(), weights.begin(), weights.end());
    }
    if (loss && with_gradients) {
      Values wrt;
      for (size_t i = 0; i < x.size(); ++i)
        if (is_float(x[i].dtype())) {
          wrt.push_back(x[i]);
          out.wrt.push_back(i);
        }
      if (wrt.empty()) return b.finish();
      const Values d = grad(loss, wrt);
      for (size_t i = 0; i < d.size(); ++i) b.output(d[i], OutputKind::result, "d" + std::to_string(i));
    }
    return b.finish();
  };
  out.loss = build(false);
  out.gradients = autodiff(build(true), PassContext{});
  verify(out.gradients, Level::lowered, "autodiff");
  return out;
}

}  // namespace

GradientCheck check_gradient(const OpDef& op, const Sample& sample, uint64_t seed) {
  LATHE_USER_CHECK(op.is_differentiable(), "{}: has neither vjp nor expand: it has no gradient to check", op.name());
  const CheckedGraphs g = checked_graphs(op, sample, seed);
  GradientCheck out;
  out.possible = !g.wrt.empty();
  if (!out.possible) return out;
  std::vector<std::vector<double>> direction;
  for (size_t i : g.wrt) direction.push_back(random_direction(g.inputs[i].data.size(), seed + 200 + i));
  const auto gradients = interpret(g.gradients, g.inputs, Precision::exact);
  double derivative = 0, size = 1;
  for (size_t k = 0; k < g.wrt.size(); ++k)
    for (size_t i = 0; i < direction[k].size(); ++i) {
      derivative += gradients[k].data[i] * direction[k][i];
      size += std::abs(gradients[k].data[i] * direction[k][i]);
    }
  const auto loss = [&](double by) {
    std::vector<HostTensor> x = g.inputs;
    for (size_t k = 0; k < g.wrt.size(); ++k)
      for (size_t i = 0; i < direction[k].size(); ++i) x[g.wrt[k]].data[i] += by * direction[k][i];
    return interpret(g.loss, x, Precision::exact)[0].data[0];
  };
  for (const DifferenceStep& step : kDifferenceSteps) {
    const double h = step.h;
    const double want = (loss(-2 * h) - 8 * loss(-h) + 8 * loss(h) - loss(2 * h)) / (12 * h);
    out.error = std::abs(derivative - want) / size;
    // A difference that is no number agrees with nothing.
    if (std::isnan(out.error)) out.error = HUGE_VAL;
    out.tolerance = step.tolerance;
    if (out.ok()) break;
  }
  return out;
}

}  // namespace lathe
