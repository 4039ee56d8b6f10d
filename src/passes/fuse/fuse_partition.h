// A partition of the live nodes of a FuseGraph into groups, at first one per node. The graph of groups is acyclic at
// all times: the partition keeps its groups in a topological order, and merge() refuses where none would be left.
//
// Levels of nodes do not serve for that. A group holds nodes of several levels, so a path that enters it at a high one
// may leave it at a low one.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string_view>
#include <vector>

#include "passes/fuse/fuse_graph.h"

namespace lathe {

class FusePartition {
 public:
  struct Group {
    std::string_view kind;  // "loop", "matmul", "conv2d"; empty: nothing merges with it
    NodeIds nodes;
    ValueIds inputs;      // read from outside
    int32_t reduce = -1;  // loops: the reduction among the nodes
    int instrs = 0;       // loops: scalar instructions, those of copied nodes included
    // Of the graph. Loops: that of everything before the reduction, and, if there is one, of everything behind it.
    const Shape *domain = nullptr, *tail = nullptr;
  };

  explicit FusePartition(const FuseGraph&);

  int32_t id(int32_t node) const { return of_[static_cast<size_t>(node)]; }
  Group& operator[](int32_t id) { return groups_[static_cast<size_t>(id)]; }
  const Group& operator[](int32_t id) const { return groups_[static_cast<size_t>(id)]; }
  Group& of(int32_t node) { return (*this)[id(node)]; }
  const Group& of(int32_t node) const { return (*this)[id(node)]; }

  // All nodes become the first one's. False, and nothing changes, where a path leaves the groups and comes back, or
  // where the search for one takes too long.
  bool merge(std::initializer_list<int32_t> ids);
  ValueIds inputs_together(const Group&, const Group&) const;
  bool reads(int32_t reader, int32_t writer) const;  // a value of the other group
  int32_t ready(const Group&) const;                 // the level from which on all inputs exist
  // Ids in an order in which every group stands behind what it depends on, near the order of the source; their nodes
  // are sorted.
  std::vector<int32_t> sorted();

 private:
  template <class F>
  void for_each_edge(int32_t id, F&& f) const;

  void absorb(int32_t a, int32_t b);  // b's nodes become a's
  bool find_behind(std::initializer_list<int32_t> ids, int32_t last);
  void move_behind(int32_t group, std::span<const int32_t> moved);
  void renumber();

  const FuseGraph& f_;
  std::vector<int32_t> of_;    // by node
  std::vector<Group> groups_;  // by node that was its first
  std::vector<int32_t> seen_;  // by group: the last search that saw it
  int32_t search_ = 0;
  std::vector<int32_t> behind_;  // what a search found
  // The order: a circular list from and to head_, and numbers that rise along it, by group.
  std::vector<int32_t> next_, previous_;
  std::vector<uint64_t> place_;
  const int32_t head_;
};

}  // namespace lathe
