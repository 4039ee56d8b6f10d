#include "train/selftest.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/philox.h"
#include "plan/plan.h"
#include "run/run_graph.h"
#include "train/compile.h"
#include "train/state.h"

namespace lathe {
namespace {

HostTensor state_input(const StateSpec& s, uint64_t seed) {
  HostTensor t{s.type, std::vector<double>(static_cast<size_t>(s.type.numel()))};
  const CounterRng rng(seed, 77, static_cast<uint32_t>(s.name.size()), 1);
  if (s.type.dtype != DType::f32) return t;
  if (s.kind == InputKind::param) {
    std::vector<std::byte> bytes(static_cast<size_t>(s.type.bytes()));
    initial_value(s, static_cast<int64_t>(seed), bytes);
    for (size_t i = 0; i < t.data.size(); ++i) {
      float f;
      std::memcpy(&f, bytes.data() + i * sizeof(f), sizeof(f));
      t.data[i] = static_cast<double>(f) + 0.05 * (rng.uniform(i) - 0.5);
    }
    return t;
  }
  // Running variances and second moments must be positive; the others may be.
  for (size_t i = 0; i < t.data.size(); ++i) t.data[i] = 0.1 + rng.uniform(i);
  return t;
}

// A target with kernels for every composite leaves `expand` nothing to do: here it opens all of them.
void check_expansions(const Graph& g, std::span<const PassEntry> passes, const InputMaker& inputs,
                      PassVerdict& verdict) {
  const auto is_expand = [](const auto& p) { return p.name == "expand"; };
  const auto last = std::ranges::find_if(passes, is_expand);
  const auto row = std::ranges::find_if(verdict.passes, is_expand);
  if (last == passes.end() || row == verdict.passes.end()) return;
  Target none;
  none.native_ops.clear();
  PassVerdict all = validate_passes(g, passes.first(static_cast<size_t>(last - passes.begin()) + 1), {none}, 1, inputs);
  if (!row->compared) *row = *std::ranges::find_if(all.passes, is_expand);
  if (!verdict.ok() || all.ok()) return;
  verdict.first_bad = all.first_bad;
  verdict.why = all.why;
}

}  // namespace

std::vector<HostTensor> step_inputs(const Graph& g, const std::vector<StateSpec>& state, int64_t classes,
                                    uint64_t seed) {
  std::vector<HostTensor> out;
  for (const Input& in : g.inputs) {
    if (is_state(in.kind)) {
      out.push_back(state_input(*std::ranges::find(state, in.name, &StateSpec::name), seed));
      continue;
    }
    HostTensor t{g.type(in.value), std::vector<double>(static_cast<size_t>(g.type(in.value).numel()))};
    const CounterRng rng(seed, 78, static_cast<uint32_t>(in.name.size()), 2);
    for (size_t i = 0; i < t.data.size(); ++i) {
      if (in.name == "lr")
        t.data[i] = 0.1;
      else if (in.name == "loss_scale")
        t.data[i] = 0.25;
      else if (in.name == "key")
        t.data[i] = i == 0 ? static_cast<double>(seed) : 3;
      else if (in.name == "index")
        t.data[i] = static_cast<double>(7 * i + 1);
      else if (t.type.dtype == DType::u8 && !(in.name == "y" && t.type.shape.ndim() == 3))  // not classes of pixels
        t.data[i] = static_cast<double>(rng.below(i, 256));
      else
        t.data[i] = static_cast<double>(rng.below(i, static_cast<uint64_t>(classes)));
    }
    out.push_back(std::move(t));
  }
  return out;
}

std::vector<GraphVerdict> selftest_passes(std::span<const PassEntry> passes, const Target& target,
                                          const std::function<void(const GraphVerdict&)>& on_graph) {
  std::vector<GraphVerdict> out;
  for (const BuiltinRecipe& builtin : builtin_recipes()) {
    const Recipe r = tiny_twin(parse_recipe(builtin.text, std::string(builtin.name)));
    const DataSpec data = describe_data(r);
    std::vector<Step> steps = build_steps(r, data, {});
    Recipe accumulating = r;
    accumulating.train.accumulate = 2;
    accumulating.train.update = "after_all";
    CompileOptions train_only;
    train_only.eval = false;
    for (Step& s : build_steps(accumulating, data, train_only)) steps.push_back(std::move(s));
    const int64_t classes = step_config(r, data).model.classes;
    for (const Step& s : steps) {
      const auto inputs = [&](const Graph& g, uint64_t seed) { return step_inputs(g, s.state, classes, seed); };
      out.push_back({std::string(builtin.name), s.graph.name, validate_passes(s.graph, passes, {target}, 1, inputs)});
      check_expansions(s.graph, passes, inputs, out.back().verdict);
      if (on_graph) on_graph(out.back());
    }
  }
  return out;
}

namespace {

// Rounding differs between devices, and steps amplify it; those of batch norms over the few values of a tiny twin by a
// thousand times within five. A wrong gradient shows in the second loss.
constexpr size_t kEarlySteps = 3;
constexpr double kLossTolerance = 1e-3, kLaterTolerance = 5e-2;

struct ShortRun {
  std::vector<double> losses, norms;
  std::vector<std::byte> state;
};

ShortRun train_shortly(const Backend& backend, const DeviceOptions& options, const Step& step, int64_t classes,
                       int steps) {
  const Target target = backend.target(options);
  std::vector<Graph> graphs;
  graphs.push_back(run_pipeline(step.graph, {target}));
  Executor e(plan(std::move(graphs), target, backend.kernels()), backend.open(options),
             {.slots = 1, .snapshot = false});
  initialize_state(e, step.state, 1);
  ShortRun run;
  for (int i = 0; i < steps; ++i) {
    const auto values = step_inputs(step.graph, step.state, classes, static_cast<uint64_t>(i));
    for (size_t k = 0; k < values.size(); ++k) {
      const Input& in = step.graph.inputs[k];
      if (is_state(in.kind)) continue;
      const std::vector<std::byte> bytes = to_bytes(values[k]);
      std::memcpy(e.staging(0, in.name), bytes.data(), bytes.size());
    }
    e.stage(0, 0);
    e.run(0, 0);
    run.losses.push_back(e.metric("loss"));
    run.norms.push_back(e.metric("grad_norm"));
  }
  for (const Port& p : e.set().state) {
    std::vector<std::byte> bytes(static_cast<size_t>(p.type.bytes()));
    e.read_state(p.name, bytes);
    run.state.insert(run.state.end(), bytes.begin(), bytes.end());
  }
  return run;
}

}  // namespace

bool TrainingCheck::ok() const {
  bool alike = true;
  for (size_t i = 0; i < loss_errors.size(); ++i)
    alike = alike && loss_errors[i] <= (i < kEarlySteps ? kLossTolerance : kLaterTolerance);
  return failure.empty() && repeats && alike;
}

TrainingCheck check_training(const Recipe& r, const Backend& backend, const DeviceOptions& options, int steps) {
  const DataSpec data = describe_data(r);
  CompileOptions train_only;
  train_only.eval = false;
  const Step step = build_steps(r, data, train_only).front();
  const int64_t classes = step_config(r, data).model.classes;
  TrainingCheck check;
  check.recipe = r.name;
  check.steps = steps;
  try {
    const ShortRun expected = train_shortly(find_backend("cpu"), {}, step, classes, steps);
    const ShortRun first = train_shortly(backend, options, step, classes, steps),
                   second = train_shortly(backend, options, step, classes, steps);
    const auto errors = [](const std::vector<double>& a, const std::vector<double>& b) {
      std::vector<double> out;
      for (size_t i = 0; i < b.size(); ++i) out.push_back(std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
      return out;
    };
    check.loss_errors = errors(first.losses, expected.losses);
    check.norm_errors = errors(first.norms, expected.norms);
    check.loss_error = *std::max_element(check.loss_errors.begin(), check.loss_errors.end());
    check.repeats = first.losses == second.losses && first.state == second.state;
  } catch (const DeviceError& e) {
    check.failure = e.what();
  }
  return check;
}

std::vector<TrainingCheck> selftest_training(const Backend& backend, const DeviceOptions& options, int steps) {
  std::vector<TrainingCheck> out;
  for (const BuiltinRecipe& builtin : builtin_recipes()) {
    const Recipe r = parse_recipe(builtin.text, std::string(builtin.name));
    out.push_back(check_training(tiny_twin(r), backend, options, steps));
    out.back().recipe = builtin.name;
  }
  return out;
}

}  // namespace lathe
