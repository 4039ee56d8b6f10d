// CommunicationTime: how long the steps of a rank talk to other ranks, and how much of that its compute lane waits for.
// Evaluations and checkpoints are not in it.
#pragma once

#include "comm/group.h"
#include "comm/position.h"
#include "run/executor.h"

namespace lathe {

class CommunicationTime {
 public:
  // Null: there is one rank. Both outlive it.
  void watch(comm::Group* group, const Executor& executor) {
    position_ = group ? group->position() : nullptr;
    executor_ = &executor;
  }
  void begin_step(int64_t step) {  // counted from 1
    if (position_) position_->set_step(step);
    before_ = now();
  }
  void end_step() {
    const Times after = now();
    sum_.all += after.all - before_.all;
    sum_.exposed += after.exposed - before_.exposed;
  }
  double seconds() const { return sum_.all; }
  double exposed() const { return sum_.exposed; }

 private:
  struct Times {
    double all = 0, exposed = 0;
  };
  Times now() const { return position_ ? Times{position_->seconds_inside(), executor_->lane_wait_seconds()} : Times{}; }

  comm::Position* position_ = nullptr;
  const Executor* executor_ = nullptr;
  Times before_, sum_;
};

}  // namespace lathe
