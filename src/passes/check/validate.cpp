#include "passes/check/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/philox.h"
#include "passes/check/random_graph.h"
#include "passes/dce.h"

namespace lathe {
namespace {

// Passes may change the order of a few f64 operations; a wrong one is off by far more.
constexpr double kTolerance = 1e-9;

// Of central differences in f64 with kStep: far above their own error, far below a wrong derivative.
constexpr double kStep = 1e-6, kGradientTolerance = 1e-5;

bool is_executable(const Graph& g) {
  return std::ranges::none_of(g.nodes, [](const Node& n) { return n.is("grad"); });
}

Graph with_outputs(Graph g, std::span<const ValueId> values, const PassContext& context) {
  g.outputs.clear();
  for (const ValueId v : values) g.outputs.push_back({v, OutputKind::result, fmt::format("v{}", g.outputs.size()), -1});
  return dce(std::move(g), context);
}

// The derivative along a random direction, by the pass and by central differences of the loss. Of the first `grad`
// node: what it is taken of holds no other, so that the loss can run.
PassCheck check_gradient(const PassEntry& pass, const Graph& g, const PassContext& context,
                         const std::vector<HostTensor>& inputs, uint64_t seed) {
  const Node& grad = *std::ranges::find_if(g.nodes, [](const Node& n) { return n.is("grad"); });
  const Graph loss = with_outputs(g, std::span(grad.inputs).first(1), context);
  const Graph slopes = pass.run(with_outputs(g, grad.outputs, context), context);
  const auto by_pass = interpret(slopes, inputs, Precision::exact);
  std::vector<HostTensor> up = inputs, down = inputs;
  double expected = 0, size = 0;
  for (size_t k = 1; k < grad.inputs.size(); ++k) {
    const auto input = std::ranges::find(g.inputs, grad.inputs[k], &Input::value);
    if (input == g.inputs.end()) continue;  // of a value inside of the graph: no input to move
    const auto at = static_cast<size_t>(input - g.inputs.begin());
    const CounterRng rng(seed, 79, static_cast<uint32_t>(k), 3);
    for (size_t i = 0; i < inputs[at].data.size(); ++i) {
      const double d = 2 * rng.uniform(i) - 1, slope = by_pass[k - 1].data[i];
      up[at].data[i] += kStep * d;
      down[at].data[i] -= kStep * d;
      expected += slope * d;
      size += slope * slope * d * d;
    }
  }
  const auto value = [&](const std::vector<HostTensor>& x) { return interpret(loss, x, Precision::exact)[0].data[0]; };
  const double measured = (value(up) - value(down)) / (2 * kStep);
  PassCheck check;
  check.name = pass.name;
  check.compared = true;
  check.output = "the derivative along a random direction";
  // Relative to the length of the terms: their sum may cancel.
  check.error = std::fabs(measured - expected) / std::max(std::sqrt(size), 1e-12);
  return check;
}

}  // namespace

PassVerdict validate_passes(const Graph& g, std::span<const PassEntry> passes, const PassContext& context,
                            uint64_t seed, const InputMaker& make_inputs) {
  PassVerdict verdict;
  std::vector<HostTensor> inputs, results;  // of the last executable graph; empty before there is one
  const auto run = [&](const Graph& now) {
    if (inputs.empty()) inputs = make_inputs ? make_inputs(now, seed) : random_inputs(now, seed);
    return interpret(now, inputs, Precision::exact);
  };
  if (is_executable(g)) results = run(g);

  PipelineOptions options;
  options.on_pass = [&](const PassEntry& pass, const Graph& before, const Graph& after) {
    PassCheck check;
    check.name = pass.name;
    if (!is_executable(after)) {
      verdict.passes.push_back(std::move(check));
      return;
    }
    if (is_executable(before) && structurally_equal(before, after)) {
      verdict.passes.push_back(std::move(check));
      return;
    }
    auto now = run(after);
    if (!is_executable(before)) {
      check = check_gradient(pass, before, context, inputs, seed);
      if (!(check.error <= kGradientTolerance) && verdict.first_bad.empty()) {
        verdict.first_bad = check.name;
        verdict.why =
            fmt::format("pass {}: {} differs from finite differences by {:.3g}", check.name, check.output, check.error);
      }
      results = std::move(now);
      verdict.passes.push_back(std::move(check));
      return;
    }
    check.compared = true;
    for (size_t i = 0; i < now.size(); ++i) {
      const double error = relative_error(now[i], results[i]);
      if (i == 0 || error > check.error) {
        check.error = error;
        check.output = after.outputs[i].name;
      }
    }
    results = std::move(now);
    if (check.error > kTolerance && verdict.first_bad.empty()) {
      verdict.first_bad = check.name;
      verdict.why = fmt::format("pass {} changes the numbers: output \"{}\" is off by {:.3g} of its largest element",
                                check.name, check.output, check.error);
    }
    verdict.passes.push_back(std::move(check));
  };
  run_passes(passes, g, context, options);
  return verdict;
}

}  // namespace lathe
