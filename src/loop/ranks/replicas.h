// Replicas: state that every rank has whole is the same on all of them after every step, to the bit: all apply the same
// sums in the same way. A bit that memory, a processor or a link changed on one rank alone stays there, and spoils what
// is learned without a sign. So ranks compare hashes of that state every so many steps, and before every checkpoint:
// none is written of ranks that differ.
//
// Not seen: what ranks have parts of, for it has no second copy; and a wrong sum that all ranks got alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/collectives.h"
#include "comm/control.h"
#include "ir/step_set.h"
#include "run/executor.h"

namespace lathe {

class Replicas {
 public:
  // `every`: steps between two comparisons; 0: none at all. Without a group nothing is compared. `control`: of ranks
  // that are processes, or null. All outlive it.
  Replicas(Executor&, const StateTable&, comm::Group*, comm::Control*, int64_t every);

  // Compares the state after so many steps, where that is due; every rank calls it after every step.
  void after_step(int64_t step) {
    if (ranks_ && step % every_ == 0) compare(step);
  }
  // Compares it in any case, but once for a step. Waits for the steps that were given to the device, and takes its
  // snapshot; allocates nothing. DeviceError, the same on all ranks: they differ.
  void compare(int64_t step);

 private:
  [[noreturn]] void fail(int64_t step);

  Executor& executor_;
  comm::Control* control_;
  std::optional<comm::Collectives> ranks_;  // nothing: there is nothing to compare
  int64_t every_;
  std::optional<int64_t> same_after_;  // the step of the last comparison
  std::vector<size_t> rows_;           // of the executor's state: those that every rank has whole
  std::vector<uint64_t> hashes_;       // of rows_
  std::vector<uint64_t> sums_;         // of the hashes, by rank
};

// The line about the first of `names` whose hashes differ: who has others than most, if that can be told. `hashes`:
// rank by rank, in the order of the names.
std::string describe_difference(std::span<const std::string> names, std::span<const uint64_t> hashes, int ranks);

}  // namespace lathe
