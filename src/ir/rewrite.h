// Helpers that passes are written with: rebuild a graph node by node, and inline one graph into another.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "ir/step_set.h"

namespace lathe {

// Copies a graph into a builder node by node; a pass decides per node what stands in its place. Keeps inputs, outputs,
// their order and names.
class Rebuild {
 public:
  explicit Rebuild(const Graph& source);  // inputs are copied at once

  const Graph& source() const { return source_; }     // the graph that is copied
  Builder& builder() { return builder_; }             // the copy, as far as it is built
  Value mapped(ValueId old) const;                    // the new value that stands for a value of the source
  Values mapped(std::span<const ValueId> old) const;  // the same for several
  void map(ValueId old, Value now);                   // `now` stands for `old` from here on
  void copy(const Node&);                             // appends the node as it is, on the mapped inputs
  void take(Node&);  // the same for a node of the source that nobody will look at again: nothing is allocated for it
  void replace(const Node&, const Values& now);  // maps the node's outputs to existing new values
  Graph finish();                                // maps the outputs and returns the new graph

 private:
  const Graph& source_;
  Builder builder_;
  std::vector<ValueId> map_;
};

// Calls on_node(Rebuild&, const Node&) for every node in order: it returns the values that replace the node's outputs,
// or nullopt to copy the node.
Graph rebuild(const Graph&, const std::function<std::optional<Values>(Rebuild&, const Node&)>& on_node);

// The same for a source that is not needed any more: nodes that stay are moved. on_node must not look at nodes of
// r.source() that it was called for already.
Graph rebuild(Graph&&, const std::function<std::optional<Values>(Rebuild&, const Node&)>& on_node);

// Changes a graph where it stands: nodes are appended wherever they are wanted from, inputs of nodes and outputs are
// given other values, and finish() puts every node behind what it reads, in the old order as far as that allows.
class Edit {
 public:
  explicit Edit(Graph);                                    // which it owns from now on
  Builder& builder() { return builder_; }                  // where nodes are appended
  const Graph& graph() const { return builder_.graph(); }  // as it is now, possibly out of order
  Value value(ValueId id) { return builder_.value(id); }   // a handle
  void set_input(size_t node, size_t k, Value now);        // of a node; of the same type
  void set_output(size_t output, Value now);               // of the same type
  // What was there when the edit began, outputs included, reads `now` for `old`; nodes appended since read `old`.
  void redirect(Value old, Value now);
  Value state_input(StateSpec, StateTable&);  // an input with its row; the one that is there already
  Graph finish();                             // the graph in order

 private:
  Builder builder_;
  size_t old_, old_outputs_;
  std::vector<ValueId> redirected_;  // by value; -1: not
  std::unordered_map<std::string, ValueId> states_;
};

// The value that `of` would be with `now` in the place of `old`: appends copies of the nodes that lie between, with
// their random streams; all others are shared.
Value clone_cone(Builder&, Value of, ArgValues old, ArgValues now);

// Appends the nodes of `body` to the builder with its inputs replaced by `args`; returns the values of its outputs.
Values inline_graph(Builder&, const Graph& body, ArgValues args);

// Appends the expansion of a composite node; origins of new nodes are the node's. UserError with the op's name where it
// gives values of another graph.
Values expand_node(Builder&, const Node&, ArgValues args);

// For loops that expand until no composite is left: UserError with the op's name where there is no end to it, after
// `depth` expansions within expansions.
void check_expansion_ends(const Graph&, int depth, const OpDef&);

}  // namespace lathe
