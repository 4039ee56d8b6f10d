// A partition of the live nodes of a FuseGraph into groups, at first one per node, and the question that keeps the
// graph of groups acyclic: is there a path from here to there?
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "passes/fuse/fuse_graph.h"

namespace lathe {

class FusePartition {
 public:
  struct Group {
    std::string_view kind;  // "loop", "matmul", "conv2d"; empty: nothing merges with it
    std::vector<int32_t> nodes;
    std::vector<ValueId> inputs;  // read from outside
    int32_t reduce = -1;          // loops: the reduction among the nodes
    Shape domain;                 // loops: shape of everything before the reduction
    Shape tail;                   // loops with a reduction: shape of everything behind it
    int instrs = 0;               // loops: scalar instructions, those of copied nodes included
    int32_t min_level = 0, max_level = 0;
  };

  explicit FusePartition(const FuseGraph&);

  int32_t id(int32_t node) const { return of_[static_cast<size_t>(node)]; }
  Group& operator[](int32_t id) { return groups_[static_cast<size_t>(id)]; }
  const Group& operator[](int32_t id) const { return groups_[static_cast<size_t>(id)]; }
  Group& of(int32_t node) { return (*this)[id(node)]; }
  const Group& of(int32_t node) const { return (*this)[id(node)]; }

  void absorb(int32_t a, int32_t b);  // b's nodes become a's
  std::vector<ValueId> inputs_together(const Group&, const Group&) const;
  bool reads(int32_t reader, int32_t writer) const;  // a value of the other group
  int32_t ready(const Group&) const;                 // the level from which on all inputs exist
  // Nodes that must run after a node of the group, outside of a and b.
  std::vector<int32_t> successors(const Group&, int32_t a, int32_t b) const;
  // Is there a path from one of the nodes to the target that does not pass `without`? A search that takes too long says
  // yes.
  bool reaches(const std::vector<int32_t>& from, int32_t target, int32_t without);
  // Ids in an order in which every group stands behind what it depends on, near the order of the source; their nodes
  // are sorted.
  std::vector<int32_t> sorted();

 private:
  template <class F>
  void for_each_edge(int32_t id, F&& f) const;

  const FuseGraph& f_;
  std::vector<int32_t> of_;    // by node
  std::vector<Group> groups_;  // by node that was its first
  std::vector<int32_t> seen_;  // by group: the last search that saw it
  int32_t search_ = 0;
};

}  // namespace lathe
