// The graph as fuse sees it: live nodes with their true dependencies. Transparent nodes (constants, broadcasts, and
// what inline_node() adds) do not count: they are computed where they are read. A node that reads state must run before
// the node that writes its new value.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"

namespace lathe {

inline size_t at(int32_t i) { return static_cast<size_t>(i); }

struct FuseGraph {
  explicit FuseGraph(const Graph&);

  const Graph& g;
  std::vector<int32_t> def;       // by value
  std::vector<bool> is_output;    // by value; also what an output repeats
  std::vector<ValueId> updates;   // by value: the state whose storage it takes, or -1
  std::vector<bool> transparent;  // by node
  std::vector<bool> live;         // by node; false for transparent ones
  std::vector<ValueIds> sources;  // by node: what it reads, behind transparent nodes
  std::vector<NodeIds> readers;   // by node: nodes that read a result of it, ascending
  // By node: nodes that run after it and read nothing of it: they write state which it reads, or are ordered as it is.
  std::vector<NodeIds> writers;
  std::vector<int32_t> level;  // by node: longest path from the inputs over readers and writers

  const Node& node(int32_t i) const { return g.nodes[static_cast<size_t>(i)]; }
  bool makes_output(int32_t i) const;
  // Makes a node transparent: its readers read what it reads. It has no writers and makes no output.
  void inline_node(int32_t i);
  // The level at which a value exists: 0 for inputs.
  int32_t level_of(ValueId v) const;

 private:
  void find_sources();
  void find_writers();
  void keep_order();   // of ordered nodes
  bool find_levels();  // false: the dependencies on writers are circular
};

}  // namespace lathe
