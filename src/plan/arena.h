// arena: state, inputs and scratch of all Programs as places in the segments of one arena.
//
//   [state: the same in every Program][inputs: each Program's own, sized for the largest][scratch: likewise]
//
// Addresses are virtual: address / chunk is the segment, address % chunk the offset in it; nothing crosses a chunk.
#pragma once

#include <string>
#include <vector>

#include "ir/target.h"
#include "plan/pack.h"
#include "plan/plan.h"
#include "plan/storage.h"

namespace lathe {

// A graph on its way to become a Program.
struct Draft {
  Graph graph;
  std::vector<int32_t> order;
  StorageFacts facts;
  Storage storage;
};

class Arena {
 public:
  Arena(std::vector<Draft>& drafts, const Target&);

  const std::vector<Port>& state() const { return state_; }
  std::vector<int64_t> segments() const;
  Buffer value(size_t draft, ValueId) const;
  Buffer slot(size_t draft, int32_t slot) const;
  MemoryReport report(size_t draft) const;
  // The largest things of a Program at its peak, for errors: "f32[64, 128] conv1 (relu): 1.0 MiB".
  std::vector<std::string> largest(size_t draft, size_t count) const;

 private:
  struct Place {
    std::vector<int64_t> input;  // address by value, -1: not an input
    Packing packing;             // of the slots
    int64_t input_bytes = 0;     // rounded up
  };
  std::vector<MemoryReport::Moment> timeline(size_t draft) const;
  void place_state(const std::vector<Draft>&);
  Buffer buffer(int64_t address, int64_t bytes) const;
  int64_t aligned(int64_t bytes) const;
  int64_t scratch_bytes(size_t draft) const;
  template <class What>
  void check_size(const TensorType&, What&& what) const;  // what(): its name, for the error

  const std::vector<Draft>& drafts_;
  const Target& target_;
  PackSpace space_;
  std::vector<Port> state_;
  std::vector<int64_t> state_address_;
  std::vector<int64_t> used_;  // by segment: bytes in use
  std::vector<Place> places_;
  std::vector<std::vector<bool>> gradient_;  // by draft and value
};

}  // namespace lathe
