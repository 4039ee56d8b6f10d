#include "passes/check/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "base/philox.h"
#include "passes/autodiff.h"
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
bool is_executable(const StepSet& set) {
  return std::ranges::all_of(set.graphs, [](const Graph& g) { return is_executable(g); });
}

using Named = std::map<std::string, HostTensor>;
using Shown = std::map<std::string, std::vector<HostTensor>>;  // by name, one of each graph that has it

constexpr std::string_view kState = "state ";  // before the names of state in Shown

// The inputs of all sets that one validation runs: equal names have equal values; tail batches are shorter, and have
// values of their own.
class Inputs {
 public:
  Inputs(const InputMaker& make, uint64_t seed) : make_(make), seed_(seed) {}

  std::vector<HostTensor> of(const StepSet& set, const Graph& g, const Named& state) {
    std::vector<HostTensor> fresh;
    std::vector<HostTensor> out;
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      const Input& in = g.inputs[i];
      if (const auto now = state.find(in.name); now != state.end()) {
        out.push_back(now->second);
        continue;
      }
      const std::string key = key_of(in.name, g.type(in.value));
      auto known = known_.find(key);
      if (known == known_.end()) {
        if (fresh.empty()) fresh = make_ ? make_(g, set.state, seed_) : random_inputs(g, seed_);
        known = known_.emplace(key, first_value(set, in, std::move(fresh[i]))).first;
      }
      out.push_back(known->second);
    }
    return out;
  }
  void set_began() { began_ = true; }  // a whole set has run

 private:
  static std::string key_of(const std::string& name, const TensorType& type) { return name + " " + to_string(type); }

  // Sums of gradients are zero between steps; copies start as what they are copies of; what passes add to the inputs of
  // a step does nothing at 1.
  HostTensor first_value(const StepSet& set, const Input& in, HostTensor made) const {
    const auto filled = [](HostTensor t, double value) {
      std::ranges::fill(t.data, value);
      return t;
    };
    if (in.kind == InputKind::gradient) return filled(std::move(made), 0);
    if (in.kind == InputKind::step && began_) return filled(std::move(made), 1);
    const StateSpec* row = is_state(in.kind) ? set.state.find(in.name) : nullptr;
    if (!row || row->like.empty()) return made;
    const auto original = known_.find(key_of(row->like, row->type));
    return original == known_.end() ? made : original->second;
  }

  InputMaker make_;
  uint64_t seed_;
  Named known_;
  bool began_ = false;
};

// All that the graphs write and show, in their order: each write of a state counts, whether or not another follows.
Shown run_set(StepSet set, const PassContext& context, Inputs& inputs) {
  for (Graph& g : set.graphs)
    if (!is_executable(g)) g = autodiff(std::move(g), context);
  Named state;
  Shown shown;
  for (const Graph& g : set.graphs) {
    auto results = interpret(g, inputs.of(set, g, state), Precision::exact);
    for (size_t i = 0; i < results.size(); ++i) {
      const Output& o = g.outputs[i];
      const bool kept = o.kind == OutputKind::state;
      if (kept) state[o.name] = results[i];
      shown[kept ? std::string(kState) + o.name : o.name].push_back(std::move(results[i]));
    }
  }
  inputs.set_began();
  return shown;
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

// Everything that `expected` has; what is new in `actual` has no counterpart. A pass may take a state away with its row
// in the table, if it may touch state; an update that is gone while the row is there is lost, as is a metric.
PassCheck compare(const PassEntry& pass, const Shown& actual, const Shown& expected, const StateTable& table) {
  PassCheck check;
  check.name = pass.name;
  check.compared = true;
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    const size_t count = found == actual.end() ? 0 : found->second.size();
    const bool is_state = name.starts_with(kState);
    if (count == 0 && is_state && (pass.touches & kTouchesState) && !table.find(name.substr(kState.size()))) continue;
    for (size_t k = 0; k < values.size(); ++k) {
      const double error =
          k < count ? relative_error(found->second[k], values[k]) : std::numeric_limits<double>::infinity();
      if (check.output.empty() || error > check.error) {
        check.error = error;
        check.output = name;
        check.lost = k >= count;
      }
    }
  }
  return check;
}

// Sums of gradients begin at zero in run_set, where what overwrites them looks like what adds to them. A graph that
// writes sums and no parameter adds to what is there.
PassCheck check_sums(const PassEntry& pass, const StepSet& set, const PassContext& context, Inputs& inputs,
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
  Inputs inputs(make_inputs, seed);
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

}  // namespace lathe
