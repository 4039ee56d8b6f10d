#include "selftest/selftest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "base/philox.h"
#include "compile/compile.h"
#include "passes/partition/shard_state.h"
#include "passes/precision.h"
#include "passes/techniques/accumulate.h"
#include "passes/techniques/gate.h"
#include "plan/plan.h"
#include "run/run_graph.h"
#include "session/state.h"

namespace lathe {
namespace {

HostTensor state_input(const StateSpec& s, uint64_t seed) {
  HostTensor t{s.type, std::vector<double>(static_cast<size_t>(s.type.numel()))};
  const CounterRng rng(seed, 77, static_cast<uint32_t>(s.name.size()), 1);
  if (s.type.dtype != DType::f32) return t;
  if (s.kind == InputKind::param) {
    std::vector<float> first(t.data.size());
    initial_values(s, static_cast<int64_t>(seed), 0, first);
    for (size_t i = 0; i < t.data.size(); ++i)
      t.data[i] = static_cast<double>(first[i]) + 0.05 * (rng.uniform(i) - 0.5);
    return t;
  }
  // Running variances and second moments must be positive; the others may be.
  for (size_t i = 0; i < t.data.size(); ++i) t.data[i] = 0.1 + rng.uniform(i);
  return t;
}

// A target with kernels for every composite leaves `expand` nothing to do: here it opens all of them.
void check_expansions(const StepSet& s, std::span<const PassEntry> passes, const InputMaker& inputs,
                      PassVerdict& verdict) {
  const auto is_expand = [](const auto& p) { return p.name == "expand"; };
  const auto last = std::ranges::find_if(passes, is_expand);
  const auto row = std::ranges::find_if(verdict.passes, is_expand);
  if (last == passes.end() || row == verdict.passes.end()) return;
  Target none;
  none.native_ops.clear();
  PassVerdict all = validate_passes(s, passes.first(static_cast<size_t>(last - passes.begin()) + 1), {none}, 1, inputs);
  if (!row->compared) *row = *std::ranges::find_if(all.passes, is_expand);
  if (!verdict.ok() || all.ok()) return;
  verdict.first_bad = all.first_bad;
  verdict.why = all.why;
}

}  // namespace

std::vector<BuiltinRecipe> selftest_recipes() {
  static constexpr std::string_view kLeftOut[] = {"clipart_denoise", "fashion_efficientnet", "fashion_mobilenet"};
  std::vector<BuiltinRecipe> out;
  for (const BuiltinRecipe& r : builtin_recipes())
    if (std::ranges::find(kLeftOut, r.name) == std::end(kLeftOut)) out.push_back(r);
  return out;
}

std::vector<HostTensor> step_inputs(const Graph& g, const StateTable& state, int64_t classes, uint64_t seed) {
  std::vector<HostTensor> out;
  for (const Input& in : g.inputs) {
    if (is_state(in.kind)) {
      out.push_back(state_input(*state.find(in.name), seed));
      continue;
    }
    HostTensor t{g.type(in.value), std::vector<double>(static_cast<size_t>(g.type(in.value).numel()))};
    const CounterRng rng(seed, 78, static_cast<uint32_t>(in.name.size()), 2);
    for (size_t i = 0; i < t.data.size(); ++i) {
      if (in.name == "lr")
        t.data[i] = 0.1;
      else if (in.name == "loss_weight")
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
                                          const std::function<void(const GraphVerdict&)>& on_graph,
                                          const std::vector<int>& ranks) {
  std::vector<GraphVerdict> out;
  const std::vector<BuiltinRecipe> recipes = selftest_recipes();
  for (const BuiltinRecipe& builtin : recipes) {
    const Recipe r = tiny_twin(parse_recipe(builtin.text, std::string(builtin.name)));
    const DataSpec data = describe_data(r);
    const int64_t classes = step_config(r, data).model.classes;
    const InputMaker inputs = [&](const Graph& g, const StateTable& state, uint64_t seed) {
      return step_inputs(g, state, classes, seed);
    };
    const auto check = [&](StepSet s, const PassContext& context, std::string name) {
      for (const int n : ranks)
        for (int64_t level = 0; level <= 3; ++level) {  // of sharding
          PassContext sharded = context;
          sharded.options.set(ShardOptions{level, 1});
          out.push_back({std::string(builtin.name),
                         fmt::format("{}, {} ranks{}", name, n, level > 0 ? fmt::format(", shard {}", level) : ""),
                         validate_ranks(s, passes, sharded, n, 1, inputs)});
          if (on_graph) on_graph(out.back());
        }
      if (!ranks.empty()) return;
      out.push_back({std::string(builtin.name), std::move(name), validate_passes(s, passes, context, 1, inputs)});
      check_expansions(s, passes, inputs, out.back().verdict);
      if (on_graph) on_graph(out.back());
    };
    const StepSet steps = build_steps(r, data, {});
    check(steps, pass_context(r, target), "all");
    // A step must agree with the accumulate and update that it is split into. Without other steps: those that share its
    // update would add to it.
    Recipe accumulating = r;
    accumulating.passes.get<AccumulateOptions>().batches = 2;
    accumulating.passes.get<GateOptions>().update = "after_all";
    // No recipe computes in 16 bits: of the first one, for the passes that do.
    if (&builtin == &recipes.front())
      for (const char* precision : {"f16", "bf16"}) {
        Recipe narrow = r;
        narrow.passes.get<PrecisionOptions>().type = precision;
        narrow.passes.get<GateOptions>().update = "after_all";
        check(steps, pass_context(narrow, target), precision);
      }
    for (const Graph& step : steps.graphs) {
      if (!step.name.starts_with("train")) continue;
      StepSet one = steps;
      std::erase_if(one.graphs, [&](const Graph& g) { return g.name.starts_with("train") && g.name != step.name; });
      check(std::move(one), pass_context(accumulating, target), "accumulate" + step.name.substr(5));
    }
  }
  return out;
}

namespace {

// What one step from the same state may differ by. Trainings that go their own ways drift apart instead: a relu that
// rounding turns off changes every later step, and batch norms over the few values of a tiny twin amplify that. Adam
// makes whole steps of gradients that are zero but for rounding, as those of the keys' bias.
constexpr double kLossTolerance = 1e-4, kNormTolerance = 1e-3, kUpdateTolerance = 0.1, kDriftTolerance = 0.5;

using States = std::map<std::string, std::vector<std::byte>>;  // by name

struct ShortRun {
  StateTable state;
  std::vector<double> losses, norms;
  std::vector<States> before, after;  // each step
};

States read_states(Executor& e) {
  States out;
  for (const Port& p : e.set().state) {
    std::vector<std::byte>& bytes = out[p.name];
    bytes.resize(static_cast<size_t>(p.type.bytes()));
    e.read_state(p.name, bytes);
  }
  return out;
}

// With `guide`, each step starts from the state that the guide had before it.
ShortRun train_shortly(const Backend& backend, const DeviceOptions& options, const Recipe& r,
                       const StepSet& steps_before, int64_t classes, int steps, const ShortRun* guide = nullptr) {
  const Target target = backend.target(options);
  const StepSet step = run_pipeline(steps_before, pass_context(r, target));
  Session session(step.state, plan(step.graphs, target, backend.kernels()), backend.open(options),
                  {.slots = 1, .snapshot = false});
  session.initialize(1);
  Executor& e = session.executor();
  ShortRun run;
  run.state = step.state;
  for (int i = 0; i < steps; ++i) {
    if (guide)
      for (const auto& [name, bytes] : guide->before[static_cast<size_t>(i)]) e.write_state(name, bytes);
    run.before.push_back(read_states(e));
    const auto values = step_inputs(step.graphs[0], step.state, classes, static_cast<uint64_t>(i));
    for (size_t k = 0; k < values.size(); ++k) {
      const Input& in = step.graphs[0].inputs[k];
      if (is_state(in.kind)) continue;
      const std::vector<std::byte> bytes = to_bytes(values[k]);
      std::memcpy(e.staging(0, in.name), bytes.data(), bytes.size());
    }
    e.stage(0, 0);
    e.run(0, 0);
    run.losses.push_back(e.metric("loss"));
    run.norms.push_back(e.metric("grad_norm"));
    run.after.push_back(read_states(e));
  }
  return run;
}

// How far the device's change of the f32 state is from the one expected, both from the state `before`, relative to it.
double update_error(const StateTable& state, const States& before, const States& expected, const States& got) {
  double change = 0, difference = 0;
  for (const StateSpec& s : state) {
    if (s.type.dtype != DType::f32) continue;
    const auto value = [&](const States& states, size_t i) {
      float f;
      std::memcpy(&f, states.at(s.name).data() + i * sizeof(f), sizeof(f));
      return static_cast<double>(f);
    };
    for (size_t i = 0; i < static_cast<size_t>(s.type.numel()); ++i) {
      change += std::pow(value(expected, i) - value(before, i), 2);
      difference += std::pow(value(got, i) - value(expected, i), 2);
    }
  }
  return change > 0 ? std::sqrt(difference / change) : std::sqrt(difference);
}

double largest(const std::vector<double>& errors) {  // not a number, where one is
  double out = 0;
  for (const double e : errors)
    if (!(e <= out)) out = e;
  return out;
}

}  // namespace

bool TrainingCheck::ok() const {
  return failure.empty() && repeats && loss_error <= kLossTolerance && norm_error <= kNormTolerance &&
         update_error <= kUpdateTolerance && drift <= kDriftTolerance;
}

std::string to_text(const TrainingCheck& t) {
  if (!t.failure.empty()) return "FAILED: " + t.failure;
  return fmt::format("{}steps from the cpu's state: loss within {:.1e}, norm {:.1e}, update {:.1e}; alone: {:.1e}, {}",
                     t.ok() ? "" : "FAILED: ", t.loss_error, t.norm_error, t.update_error, t.drift,
                     t.repeats ? "same bits again" : "other bits the second time");
}

TrainingCheck check_training(const Recipe& r, const Backend& backend, const DeviceOptions& options, int steps) {
  const DataSpec data = describe_data(r);
  CompileOptions train_only;
  train_only.eval = false;
  StepSet step = build_steps(r, data, train_only);
  step.graphs.resize(1);  // without the tail batch
  drop_unused_state(step);
  const int64_t classes = step_config(r, data).model.classes;
  TrainingCheck check;
  check.recipe = r.name;
  check.steps = steps;
  try {
    const ShortRun cpu = train_shortly(find_backend("cpu"), {}, r, step, classes, steps);
    const ShortRun guided = train_shortly(backend, options, r, step, classes, steps, &cpu),
                   first = train_shortly(backend, options, r, step, classes, steps),
                   second = train_shortly(backend, options, r, step, classes, steps);
    const auto error = [](const std::vector<double>& a, const std::vector<double>& b) {
      std::vector<double> out;
      for (size_t i = 0; i < b.size(); ++i) out.push_back(std::abs(a[i] - b[i]) / std::max(1.0, std::abs(b[i])));
      return largest(out);
    };
    check.loss_error = error(guided.losses, cpu.losses);
    check.norm_error = error(guided.norms, cpu.norms);
    check.drift = error(first.losses, cpu.losses);
    std::vector<double> updates;
    for (size_t i = 0; i < cpu.after.size(); ++i)
      updates.push_back(update_error(cpu.state, cpu.before[i], cpu.after[i], guided.after[i]));
    check.update_error = largest(updates);
    check.repeats = first.losses == second.losses && first.after == second.after;
  } catch (const DeviceError& e) {
    check.failure = e.what();
  }
  return check;
}

std::vector<TrainingCheck> selftest_training(const Backend& backend, const DeviceOptions& options, int steps) {
  std::vector<TrainingCheck> out;
  for (const BuiltinRecipe& builtin : selftest_recipes()) {
    const Recipe r = parse_recipe(builtin.text, std::string(builtin.name));
    out.push_back(check_training(tiny_twin(r), backend, options, steps));
    out.back().recipe = builtin.name;
  }
  return out;
}

}  // namespace lathe
