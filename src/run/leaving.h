// Leaving: runs that are left half-way, because somebody wants to stop and a step may take minutes.
//
// Lanes ask before each launch. As long as no launch of the step has written state that checkpoints keep, a run can be
// left at any launch: the state is that before the step. After that the step is completed, unless it takes longer than
// one is willing to wait; then it is left all the same, and the state is spoiled: neither that before the step nor that
// after it. Accumulated gradients are not kept, so writing them changes nothing.
//
// Devices with queues of their own ask once for each run: their launches are given long before they run.
#pragma once

#include <atomic>

#include "base/stop_flag.h"

namespace lathe {

class Leaving {  // Whether runs go on to their end.
 public:
  // Runs are left when the flag is set, those that have changed state so many seconds later. Null: no run is left.
  void watch(const StopFlag* flag, double patience = 4) {
    flag_ = flag;
    patience_ = patience;
  }
  void begin_step() { phase_.store(Phase::fresh); }  // one run or more, which are left together

  // Before a launch that `changes` kept state, or does not; by any lane.
  bool leaves(bool changes) {
    if (!flag_) return false;
    Phase phase = phase_.load(std::memory_order_acquire);
    if (flag_->signal() != 0) {
      if (phase == Phase::fresh && phase_.compare_exchange_strong(phase, Phase::left)) return true;
      if (phase == Phase::changed && flag_->seconds() > patience_) phase_.store(phase = Phase::spoiled);
    } else if (changes && phase == Phase::fresh && phase_.compare_exchange_strong(phase, Phase::changed)) {
      return false;
    }
    return phase == Phase::left || phase == Phase::spoiled;
  }
  bool spoiled() const { return phase_.load() == Phase::spoiled; }  // state was changed by a part of the step

 private:
  enum class Phase { fresh, changed, left, spoiled };  // of the step

  const StopFlag* flag_ = nullptr;
  double patience_ = 0;
  std::atomic<Phase> phase_{Phase::fresh};
};

}  // namespace lathe
