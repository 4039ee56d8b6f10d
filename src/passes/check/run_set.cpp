#include "passes/check/run_set.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "passes/autodiff.h"
#include "passes/check/random_graph.h"
#include "passes/partition/partition.h"

namespace lathe {
namespace {

std::string key_of(const std::string& name, const TensorType& type) { return name + " " + to_string(type); }

void show(Shown& shown, NamedTensors& state, const Output& o, HostTensor value) {
  const bool kept = o.kind == OutputKind::state;
  if (kept) state[o.name] = value;
  shown[kept ? std::string(kShownState) + o.name : o.name].push_back(std::move(value));
}

// What a rank has of an input; `row`: of the rank's table, null unless it is state. `own`: its samples.
HostTensor part_of_input(const HostTensor& whole, const TensorType& type, const StateSpec* row, int64_t samples,
                         const Part& own) {
  if (whole.type == type) return whole;
  const bool is_part = row && row->part.is_part();
  const int axis = is_part ? static_cast<int>(row->part.axis) : 0;
  const int64_t first = is_part ? row->part.first : own.first * (whole.type.shape[0] / samples);
  HostTensor out{type, std::vector<double>(static_cast<size_t>(type.numel()))};
  for_each_run(whole.type.shape, axis, {first, first + type.shape[axis]}, [&](int64_t from, int64_t to, int64_t count) {
    std::copy_n(whole.data.begin() + from, count, out.data.begin() + to);
  });
  return out;
}

// What all ranks together have of a state, of which each of them has a part.
HostTensor whole_of(const std::vector<StepSet>& sets, const std::vector<std::vector<HostTensor>>& results, size_t i,
                    const std::string& name) {
  const TensorType type = sets[0].state.find(name)->whole_type();
  HostTensor out{type, std::vector<double>(static_cast<size_t>(type.numel()), std::nan(""))};
  for (size_t r = 0; r < sets.size(); ++r) {
    for_each_run(type.shape, static_cast<int>(sets[r].state.find(name)->part.axis), sets[r].state.find(name)->own(),
                 [&](int64_t to, int64_t from, int64_t count) {
                   std::copy_n(results[r][i].data.begin() + from, count, out.data.begin() + to);
                 });
  }
  return out;
}

}  // namespace

bool is_executable(const Graph& g) {
  return std::ranges::none_of(g.nodes, [](const Node& n) { return n.is("grad"); });
}
bool is_executable(const StepSet& set) {
  return std::ranges::all_of(set.graphs, [](const Graph& g) { return is_executable(g); });
}

std::vector<HostTensor> RunInputs::of(const StepSet& set, const Graph& g, const NamedTensors& state) {
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

// Sums of gradients are zero between steps; copies start as what they are copies of; what passes add to the inputs of a
// step does nothing at 1.
HostTensor RunInputs::first_value(const StepSet& set, const Input& in, HostTensor made) const {
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

Shown run_set(StepSet set, const PassContext& context, RunInputs& inputs) {
  for (Graph& g : set.graphs)
    if (!is_executable(g)) g = autodiff(std::move(g), context);
  NamedTensors state;
  Shown shown;
  for (const Graph& g : set.graphs) {
    auto results = interpret(g, inputs.of(set, g, state), Precision::exact);
    for (size_t i = 0; i < results.size(); ++i) show(shown, state, g.outputs[i], std::move(results[i]));
  }
  inputs.set_began();
  return shown;
}

Shown run_ranks(const std::vector<StepSet>& sets, const StepSet& whole, RunInputs& inputs, int64_t blocks) {
  const size_t ranks = sets.size();
  std::vector<NamedTensors> state(ranks);
  NamedTensors together;  // what graphs of the whole would have
  Shown shown;
  for (size_t at = 0; at < whole.graphs.size(); ++at) {
    const Graph& all = whole.graphs[at];
    const int64_t samples = samples_of(all);
    const std::vector<HostTensor> given = inputs.of(whole, all, together);
    std::vector<const Graph*> graphs;
    std::vector<std::vector<HostTensor>> ins(ranks);
    for (size_t r = 0; r < ranks; ++r) {
      const Graph& g = sets[r].graphs[at];
      graphs.push_back(&g);
      for (const Input& in : g.inputs) {
        const TensorType& type = g.type(in.value);
        const auto source = std::ranges::find(all.inputs, in.name, &Input::name);
        if (const auto own = state[r].find(in.name); own != state[r].end())
          ins[r].push_back(own->second);
        else if (source != all.inputs.end())
          ins[r].push_back(
              part_of_input(given[static_cast<size_t>(source - all.inputs.begin())], type, sets[r].state.find(in.name),
                            samples, part_of(samples, blocks, static_cast<int64_t>(ranks), static_cast<int64_t>(r))));
        else
          ins[r].push_back({type, {static_cast<double>(r)}});  // "rank"
      }
    }
    std::vector<std::vector<HostTensor>> results = interpret_ranks(graphs, ins, Precision::exact);
    for (size_t i = 0; i < graphs[0]->outputs.size(); ++i) {
      const Output& o = graphs[0]->outputs[i];
      const StateSpec* row = o.kind == OutputKind::state ? sets[0].state.find(o.name) : nullptr;
      const bool is_part = row && row->part.is_part(),
                 is_sum = row && row->kind == InputKind::gradient && !is_part && blocks == 0;
      HostTensor value = is_part ? whole_of(sets, results, i, o.name) : results[0][i];
      for (size_t r = 0; r < ranks; ++r) {
        const HostTensor& own = results[r][i];
        if (o.kind == OutputKind::state) state[r][o.name] = own;
        if (r == 0 || is_part) continue;
        if (is_sum)
          for (size_t k = 0; k < value.data.size(); ++k) value.data[k] += own.data[k];
        else
          LATHE_USER_CHECK(relative_error(own, value) < 1e-12, "graph \"{}\": \"{}\" of rank {} is not that of rank 0",
                           all.name, o.name, r);
      }
      show(shown, together, o, std::move(value));
    }
  }
  return shown;
}

ShownError compare(const Shown& actual, const Shown& expected,
                   const std::function<bool(const std::string& name)>& may_go) {
  ShownError out;
  for (const auto& [name, values] : expected) {
    const auto found = actual.find(name);
    const size_t count = found == actual.end() ? 0 : found->second.size();
    if (count == 0 && may_go && may_go(name)) continue;
    for (size_t k = 0; k < values.size(); ++k) {
      const double error =
          k < count ? relative_error(found->second[k], values[k]) : std::numeric_limits<double>::infinity();
      if (out.output.empty() || error > out.error) out = {error, name, k >= count};
    }
  }
  return out;
}

}  // namespace lathe
