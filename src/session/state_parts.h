// State of which each rank has a part (StateSpec::part), from and to whole tensors.
#pragma once

#include <span>
#include <vector>

#include "ir/step_set.h"
#include "run/executor.h"

namespace lathe {

// Bytes of the largest tensor that ranks have parts of; 0: there is none.
int64_t largest_whole(const StateTable&);

// A tensor of the executor's state as a whole; of one that ranks have parts of, every rank reads. `room`: as many
// bytes, which hold nothing of use afterwards.
void read_whole_state(Executor&, const StateSpec&, std::span<std::byte> whole, std::span<std::byte> room);
// Each rank takes its part of the whole.
void write_whole_state(Executor&, const StateSpec&, std::span<const std::byte> whole, std::span<std::byte> room);

// The room that both want, and that of the tensor itself: the executor's snapshot, or memory of its own where that is
// none or too small.
class WholeState {
 public:
  explicit WholeState(Executor& e) : reserved_(e.snapshot()) {}
  void resize(int64_t bytes);                                        // of a tensor; what it held is lost
  std::span<std::byte> first() const { return all_.first(bytes_); }  // of two
  std::span<std::byte> second() const { return all_.subspan(all_.size() / 2, bytes_); }  // of two

 private:
  std::span<std::byte> reserved_, all_;
  std::vector<std::byte> own_;
  size_t bytes_ = 0;
};

// How many elements of the part stand before element `at` of the whole.
int64_t elements_before(const StateSpec&, int64_t at);

}  // namespace lathe
