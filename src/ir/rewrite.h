// Helpers that passes are written with: rebuild a graph node by node, and inline one graph into another.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "ir/builder.h"

namespace lathe {

// Copies a graph into a builder node by node; a pass decides per node what stands in its place. Keeps inputs, outputs,
// their order and names.
class Rebuild {
 public:
  explicit Rebuild(const Graph& source);  // inputs are copied at once

  const Graph& source() const { return source_; }        // the graph that is copied
  Builder& builder() { return builder_; }                // the copy, as far as it is built
  Value mapped(ValueId old) const;                       // the new value that stands for a value of the source
  Values mapped(const std::vector<ValueId>& old) const;  // the same for several
  void map(ValueId old, Value now);                      // `now` stands for `old` from here on
  void copy(const Node&);                                // appends the node as it is, on the mapped inputs
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

// Appends the nodes of `body` to the builder with its inputs replaced by `args`; returns the values of its outputs.
Values inline_graph(Builder&, const Graph& body, ArgValues args);

// Appends the expansion of a composite node; origins of new nodes are the node's. UserError with the op's name where it
// gives values of another graph.
Values expand_node(Builder&, const Node&, ArgValues args);

// For loops that expand until no composite is left: UserError with the op's name where there is no end to it, after
// `depth` expansions within expansions.
void check_expansion_ends(const Graph&, int depth, const OpDef&);

}  // namespace lathe
