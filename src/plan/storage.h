// storage: which values share memory, and for how long, in a given order of the nodes. Views lie in their source; a
// state output takes the place of the state it updates where its writer may do so; an elementwise output may take the
// place of an input that dies with it. Everything else gets a slot of scratch memory, with a lifetime.
//
// What kernels must tolerate (the contract of in-place work): a node that is a loop without a reduction (an elementwise
// node, or a fused node of kind "loop") may be given outputs at exactly the address of inputs that all its reads take
// at the same index, each output over another input. So such a kernel reads all inputs of a block of elements before it
// stores any output of that block. A node whose op has the trait kInPlace may be given output i at exactly the address
// of input i, which no other of its inputs has. No other kernel sees overlapping arguments.
//
// What a node on another lane than compute reads and writes keeps its place until the compute lane is known to have
// waited for it, so that nothing computed meanwhile has to.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "ir/graph.h"
#include "plan/pack.h"

namespace lathe {

// What does not depend on the order of the nodes.
struct StorageFacts {
  explicit StorageFacts(const Graph&);

  std::vector<ValueId> root;                     // by value: the value in whose memory it lies; itself unless a view
  std::vector<int32_t> def;                      // by value: the node that defines it, or -1
  std::vector<std::vector<int32_t>> readers;     // by root: nodes that read it or a view of it; views do not count
  std::vector<bool> is_input;                    // by value
  std::vector<bool> at_end;                      // by root: an output, needed after the last node
  std::vector<std::vector<uint8_t>> same_index;  // by node: its outputs may overlay this input; empty: none
};

// True when every read of `storage` (a root) by the node is at the index that it writes of `out`, one of its outputs.
bool may_overlay(const Graph&, const StorageFacts&, int32_t node, ValueId storage, ValueId out);

// A copy after the last node. `from_slot`: source is a slot; otherwise it is the place of value `from`.
struct EndCopy {
  ValueId to = -1;  // a state input; -1: the target is the slot `to_slot`
  int32_t to_slot = -1;
  ValueId from = -1;
  int32_t from_slot = -1;
};

struct Storage {
  std::vector<Interval> slots;     // times are positions in the order; the number of nodes is the time of end copies
  std::vector<int32_t> slot;       // by root value: its slot, or -1
  std::vector<ValueId> pinned;     // by root value: the state input whose place it has, or -1
  std::vector<int32_t> workspace;  // by node: its slot, or -1
  std::vector<EndCopy> copies;     // in this order
  std::vector<int32_t> saved;      // by output: the slot that keeps the old value of updated state, or -1
};

// `order`: node indices in the order of execution; `workspace`: bytes by node; `lanes`: by node.
Storage assign_storage(const Graph&, const StorageFacts&, std::span<const int32_t> order,
                       std::span<const int64_t> workspace, std::span<const Lane> lanes);

// By node of another lane than compute: the place in the order of the first node of the compute lane that starts when
// it is done; the number of nodes: the end of the step. Nodes of the compute lane have -1.
std::vector<int32_t> find_waits(const StorageFacts&, const Graph&, std::span<const int32_t> order,
                                std::span<const Lane> lanes);

}  // namespace lathe
