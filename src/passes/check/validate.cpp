#include "passes/check/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/philox.h"
#include "passes/autodiff.h"
#include "passes/check/run_set.h"
#include "passes/dce.h"
#include "passes/partition/blocks.h"

namespace lathe {
namespace {

// Passes may change the order of a few f64 operations; a wrong one is off by far more.
constexpr double kTolerance = 1e-9;

// Of central differences in f64 with kStep: far above their own error, far below a wrong derivative.
constexpr double kStep = 1e-6, kGradientTolerance = 1e-5;

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
  PassCheck check;
  check.name = pass.name;
  check.compared = true;
  check.output = "the derivative along a random direction";
  const StepSet slopes = pass.run(set_of(with_outputs(g, grad.outputs, context)), context);
  if (slopes.graphs.size() != 1 || !is_executable(slopes) || slopes.graphs[0].outputs.size() != grad.outputs.size()) {
    check.error = std::numeric_limits<double>::infinity();
    return check;
  }
  const auto by_pass = interpret(slopes.graphs[0], inputs, Precision::exact);
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
  // Relative to the length of the terms: their sum may cancel.
  check.error = std::fabs(measured - expected) / std::max(std::sqrt(size), 1e-12);
  return check;
}

// A pass may take a state away with its row in the table, if it may touch state; an update that is gone while the row
// is there is lost, as is a metric.
PassCheck compare(const PassEntry& pass, const Shown& actual, const Shown& expected, const StateTable& table) {
  const ShownError worst = compare(actual, expected, [&](const std::string& name) {
    return name.starts_with(kShownState) && (pass.touches & kTouchesState) &&
           !table.find(name.substr(kShownState.size()));
  });
  return {std::string(pass.name), true, worst.error, worst.output, worst.lost};
}

// Sums of gradients begin at zero in run_set, where what overwrites them looks like what adds to them. A graph that
// writes sums and no parameter adds to what is there.
PassCheck check_sums(const PassEntry& pass, const StepSet& set, const PassContext& context, RunInputs& inputs,
                     uint64_t seed) {
  PassCheck check;
  check.name = pass.name;
  for (Graph g : set.graphs) {
    const auto kind_of = [&](const Output& o) { return std::ranges::find(g.inputs, o.updates, &Input::value)->kind; };
    const auto writes = [&](InputKind kind) {
      return std::ranges::any_of(g.outputs,
                                 [&](const Output& o) { return o.kind == OutputKind::state && kind_of(o) == kind; });
    };
    if (!writes(InputKind::gradient) || writes(InputKind::param)) continue;
    if (!is_executable(g)) g = autodiff(std::move(g), context);
    std::vector<HostTensor> from = inputs.of(set, g, {});
    const auto without = interpret(g, from, Precision::exact);
    const CounterRng rng(seed, 80, 0, 3);
    for (size_t i = 0; i < from.size(); ++i)
      if (g.inputs[i].kind == InputKind::gradient)
        for (size_t k = 0; k < from[i].data.size(); ++k) from[i].data[k] = 2 * rng.uniform(k) - 1;
    const auto with = interpret(g, from, Precision::exact);
    for (size_t i = 0; i < g.outputs.size(); ++i) {
      const Output& o = g.outputs[i];
      if (o.kind != OutputKind::state || kind_of(o) != InputKind::gradient) continue;
      HostTensor expected = without[i];
      const auto sum = std::ranges::find(g.inputs, o.updates, &Input::value) - g.inputs.begin();
      for (size_t k = 0; k < expected.data.size(); ++k) expected.data[k] += from[static_cast<size_t>(sum)].data[k];
      const double error = relative_error(with[i], expected);
      if (check.compared && error <= check.error) continue;
      check.compared = true;
      check.error = error;
      check.output = o.name;
    }
  }
  return check;
}

// The pass expanded `grad` nodes, as autodiff does; a pass that dropped graphs with them did not.
bool lowers(const StepSet& before, const StepSet& after) {
  return !is_executable(before) && is_executable(after) &&
         std::ranges::equal(before.graphs, after.graphs, {}, &Graph::name, &Graph::name);
}

}  // namespace

PassVerdict validate_passes(const StepSet& first, std::span<const PassEntry> passes, const PassContext& context,
                            uint64_t seed, const InputMaker& make_inputs) {
  PassVerdict verdict;
  RunInputs inputs(make_inputs, seed);
  std::optional<Shown> results;  // of the set before the pass, once they are wanted
  const auto blame = [&](const PassCheck& check, double tolerance, const std::string& why) {
    if (check.error <= tolerance || !verdict.first_bad.empty()) return;
    verdict.first_bad = check.name;
    verdict.why = fmt::format("pass {}: {}", check.name, why);
  };
  const auto blame_numbers = [&](const PassCheck& check) {
    blame(check, kTolerance,
          check.lost ? fmt::format("loses output \"{}\"", check.output)
                     : fmt::format("changes the numbers: output \"{}\" is off by {:.3g} of its largest element",
                                   check.output, check.error));
  };

  PipelineOptions options;
  options.on_pass = [&](const PassEntry& pass, const StepSet& before, const StepSet& after) {
    PassCheck check;
    check.name = pass.name;
    const bool inert = pass.promise == Promise::changes && pass.options.make_inert;
    if (inert) {
      PassContext quiet = context;
      pass.options.make_inert(quiet.options);
      if (!results) results = run_set(before, context, inputs);
      const StepSet same = pass.run(before, quiet);
      check = compare(pass, run_set(same, context, inputs), *results, same.state);
      blame_numbers(check);
      if (!structurally_equal(before, after)) results.reset();
    } else if (!structurally_equal(before, after)) {
      PassCheck slope;
      if (lowers(before, after))
        for (const Graph& g : before.graphs)
          if (!is_executable(g)) {
            const PassCheck one = check_gradient(pass, g, context, inputs.of(before, g, {}), seed);
            if (!slope.compared || one.error > slope.error) slope = one;
          }
      blame(slope, kGradientTolerance,
            fmt::format("{} differs from finite differences by {:.3g}", slope.output, slope.error));
      if (!results) results = run_set(before, context, inputs);
      Shown now = run_set(after, context, inputs);
      check = compare(pass, now, *results, after.state);
      blame_numbers(check);
      if (pass.touches & kTouchesGraphs) {
        const PassCheck sums = check_sums(pass, after, context, inputs, seed);
        blame(sums, kTolerance,
              fmt::format("the sum of gradients \"{}\" is off by {:.3g} where it does not begin at zero", sums.output,
                          sums.error));
      }
      if (slope.compared) check = slope;
      results = std::move(now);
    }
    verdict.passes.push_back(std::move(check));
  };
  run_passes(passes, first, context, options);
  return verdict;
}

PassVerdict validate_ranks(const StepSet& first, std::span<const PassEntry> passes, const PassContext& context,
                           int ranks, uint64_t seed, const InputMaker& make_inputs) {
  PassVerdict verdict;
  StepSet whole;
  std::vector<std::string> names;          // of partition and the passes behind it
  std::vector<std::vector<StepSet>> sets;  // after each of them, by rank
  std::vector<bool> changed;               // by each of them, on some rank
  for (int rank = 0; rank < ranks; ++rank) {
    PassContext own = context;
    own.mesh = {ranks, rank};
    size_t at = 0;
    bool divided = false;
    PipelineOptions options;
    options.on_pass = [&](const PassEntry& pass, const StepSet& before, const StepSet& after) {
      if (pass.name == "partition") {
        divided = true;
        if (rank == 0) whole = before;
      }
      if (!divided) return;
      if (rank == 0) {
        names.emplace_back(pass.name);
        sets.emplace_back();
        changed.push_back(sets.size() == 1);
      }
      changed[at] = changed[at] || !structurally_equal(before, after);
      sets[at++].push_back(after);
    };
    run_passes(passes, first, own, options);
  }
  if (sets.empty()) return verdict;
  RunInputs inputs(make_inputs, seed);
  const Shown expected = run_set(whole, context, inputs);
  const int64_t blocks = context.options.get<SameBitsOptions>().used();
  const auto run = [&](size_t i, PassCheck& check) -> std::string {  // what is wrong; empty: nothing
    try {
      const ShownError worst = compare(run_ranks(sets[i], whole, inputs, blocks), expected);
      check = {names[i], true, worst.error, worst.output, worst.lost};
      if (worst.lost) return fmt::format("loses output \"{}\"", worst.output);
      if (worst.error <= kTolerance) return "";
      return fmt::format("output \"{}\" of {} ranks is off by {:.3g} of its largest element", worst.output, ranks,
                         worst.error);
    } catch (const UserError& e) {
      check.error = std::numeric_limits<double>::infinity();
      return e.what();
    }
  };
  for (size_t i = 0; i < sets.size(); ++i) {
    PassCheck check{names[i], changed[i], 0, "", false};
    const std::string why = changed[i] ? run(i, check) : "";
    if (!why.empty() && verdict.ok()) {
      verdict.first_bad = names[i];
      verdict.why = fmt::format("pass {}: {}", names[i], why);
    }
    verdict.passes.push_back(std::move(check));
  }
  return verdict;
}

}  // namespace lathe
