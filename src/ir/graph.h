// Graph: one step as a flat list of nodes in topological order. Flat, typed, SSA; values are dense and row-major.
// State enters as inputs and leaves as outputs that name the input whose storage they take over (donation).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/shape.h"
#include "base/shared_string.h"
#include "ir/op_def.h"
#include "ir/type_list.h"
#include "ir/value_ids.h"

namespace lathe {

enum class InputKind {  // What an input is for, and who changes it.
  param,                // weights, changed by the optimizer
  buffer,               // other model state: running statistics
  optimizer,            // moments, counts
  gradient,             // accumulated gradients
  batch,                // staged with each batch: samples, labels, sample indices
  step,                 // staged with each batch: learning rate, random key, ...
};
// It lives in the arena from step to step.
inline bool is_state(InputKind k) { return k != InputKind::batch && k != InputKind::step; }

enum class OutputKind {  // What becomes of an output.
  state,                 // new value of the state input `updates`
  metric,                // small, read by the host
  result,                // predictions
};

std::string_view to_string(InputKind);   // "param", "batch", ...
std::string_view to_string(OutputKind);  // "state", "metric", "result"

struct Input {                        // A value that comes from outside.
  ValueId value = -1;                 // in the graph
  InputKind kind = InputKind::batch;  // who provides it
  std::string name;                   // unique among the inputs
};

struct Output {                          // A value that leaves the graph.
  ValueId value = -1;                    // in the graph
  OutputKind kind = OutputKind::result;  // what becomes of it
  std::string name;                      // unique among the outputs
  ValueId updates = -1;                  // OutputKind::state: the input value whose storage this output takes
};

// What a node is for. Together with the op's traits it decides the precision in which a node is computed.
enum class Role {
  model,   // the network, and its gradients
  loss,    // what training makes small, and its gradients
  metric,  // what is only shown
  update,  // from gradients to new state
};
std::string_view to_string(Role);  // "model", "loss", "metric", "update"

struct Node {                 // One op applied to values.
  const OpDef* op = nullptr;  // never null
  ParamsPtr params;           // of the type that the op says
  ValueIds inputs;            // arguments, in order
  ValueIds outputs;           // results, in order
  SharedString origin;        // layer that made it, e.g. "conv1"; for people
  Role role = Role::model;    // inherited by gradients and expansions

  template <class P>
  const P& get() const {  // the parameters; InternalError for another type
    LATHE_CHECK(*op->params_type == typeid(P), "{}", op->name());
    return *static_cast<const P*>(params.get());
  }
  bool is(std::string_view name) const { return op->name() == name; }  // whether its op has that name
};

struct Graph {                  // One step; see the top of the file.
  std::string name;             // "train", "eval", ...
  TypeList types;               // by ValueId; may hold ids that nothing defines any more
  std::vector<Input> inputs;    // in the order of the caller's values
  std::vector<Node> nodes;      // each after those that it reads
  std::vector<Output> outputs;  // in the order of the results

  const TensorType& type(ValueId v) const { return types[static_cast<size_t>(v)]; }  // of a value
  ValueId add_value(const TensorType& t) {                                           // a new value without a definition
    types.push_back(t);
    return static_cast<ValueId>(types.size() - 1);
  }
  Types types_of(std::span<const ValueId>) const;  // of several values
  Cost cost(const Node&) const;                    // of one node
};

// Equal up to the numbering of values. Origins are for people and do not count.
bool structurally_equal(const Graph&, const Graph&);
uint64_t structural_hash(const Graph&);  // equal graphs have equal hashes

// For each value: index of the defining node, or -1 for inputs and unused ids.
std::vector<int32_t> definitions(const Graph&);
// For each value: indices of the nodes that read it, ascending, one entry per node; outputs are not counted.
std::vector<std::vector<int32_t>> readers(const Graph&);

}  // namespace lathe
