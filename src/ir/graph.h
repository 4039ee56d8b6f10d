// Graph: one step as a flat list of nodes in topological order. Flat, typed, SSA; values are dense and row-major.
// State enters as inputs and leaves as outputs that name the input whose storage they take over (donation).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "ir/op_def.h"

namespace lathe {

using ValueId = int32_t;

enum class InputKind {
  param,      // weights, changed by the optimizer
  buffer,     // other model state: running statistics
  optimizer,  // moments, counts
  gradient,   // accumulated gradients
  batch,      // staged with each batch: samples, labels, sample indices
  step,       // staged with each batch: learning rate, random key, ...
};
inline bool is_state(InputKind k) { return k != InputKind::batch && k != InputKind::step; }

enum class OutputKind {
  state,   // new value of the state input `updates`
  metric,  // small, read by the host
  result,  // predictions
};

std::string_view to_string(InputKind);
std::string_view to_string(OutputKind);

struct Input {
  ValueId value = -1;
  InputKind kind = InputKind::batch;
  std::string name;
};

struct Output {
  ValueId value = -1;
  OutputKind kind = OutputKind::result;
  std::string name;
  ValueId updates = -1;  // OutputKind::state: the input value whose storage this output takes
};

struct Node {
  const OpDef* op = nullptr;
  ParamsPtr params;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::string origin;  // layer that made it, e.g. "conv1"; for people

  template <class P>
  const P& get() const {
    LATHE_CHECK(*op->params_type == typeid(P), "{}", op->name());
    return *static_cast<const P*>(params.get());
  }
  bool is(std::string_view name) const { return op->name() == name; }
};

struct Graph {
  std::string name;
  std::vector<TensorType> types;  // by ValueId; may hold ids that nothing defines any more
  std::vector<Input> inputs;
  std::vector<Node> nodes;
  std::vector<Output> outputs;

  const TensorType& type(ValueId v) const { return types[static_cast<size_t>(v)]; }
  ValueId add_value(TensorType t) {
    types.push_back(t);
    return static_cast<ValueId>(types.size() - 1);
  }
  Types types_of(const std::vector<ValueId>&) const;
  Cost cost(const Node&) const;
};

// Equal up to the numbering of values. Origins are for people and do not count.
bool structurally_equal(const Graph&, const Graph&);
uint64_t structural_hash(const Graph&);

// For each value: index of the defining node, or -1 for inputs and unused ids.
std::vector<int32_t> definitions(const Graph&);
// For each value: indices of the nodes that read it, ascending, one entry per node; outputs are not counted.
std::vector<std::vector<int32_t>> readers(const Graph&);

}  // namespace lathe
