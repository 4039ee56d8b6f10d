#include "passes/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "passes/random_graph.h"

namespace lathe {
namespace {

// Passes may change the order of a few f64 operations; a wrong one is off by far more.
constexpr double kTolerance = 1e-9;

bool is_executable(const Graph& g) {
  return std::ranges::none_of(g.nodes, [](const Node& n) { return n.is("grad"); });
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
    check.compared = is_executable(before);
    for (size_t i = 0; check.compared && i < now.size(); ++i) {
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
