// StepQueue: the runs that were submitted to the device and that the host has not recorded yet, and the batches whose
// bytes are still on their way. The host takes a step when it is done, in order, without waiting for it. It pauses only
// for room: when as many runs are under way as the executor keeps metrics of, or when the loader has no slot that it
// could fill; then until half of them are done, so that it pauses once for several steps and the device always has
// work. Allocates nothing.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "data/loader.h"
#include "run/executor.h"

namespace lathe {

struct StepMetrics {
  static constexpr size_t kMostAdded = 16;
  int64_t step = 0;  // counted from 0
  double loss = 0;   // sum over the micro-batches
  double grad_norm = 0;
  bool accepted = true;
  bool stop = false;                        // a rank asks all to end (passes/partition/vote.h)
  double gradient_scale = 0;                // of the loss, where it is state; 0: it is not
  std::array<double, kMostAdded> added{};   // what passes of the program measure, in the order of `names`
  std::span<const std::string> names = {};  // of `added`; the queue's
};

class StepQueue {
 public:
  static constexpr int kMostRuns = 8, kMostSlots = 80;

  // `ahead` of the executor's options; `slots` of the loader, whose slot 0 is the executor's `first_slot`.
  StepQueue(Executor&, data::Loader&, int ahead, int slots, int first_slot = 0);

  bool full() const { return runs_ == ahead_; }
  void make_room();  // pauses until the older half of the runs is done; there must be one
  void wait();       // for all runs, in the driver
  // What a run is of its step: whether it has a part of the loss, and whether it ends the step with gradient norm and
  // acceptance.
  struct Part {
    bool loss = true, last = true;
  };
  // The executor's slot; the queue must not be full. False: the run was left (run/leaving.h), and the queue has it not.
  bool submit(size_t program, int slot, int64_t step, Part);

  void release(int slot);  // the loader's; all runs of the slot's batch were submitted: it goes to the loader once its
                           // bytes have moved
  void free_slots();       // before loader.next(): pauses if the loader has no slot at all

  struct Submitted {  // A run, and what it is of its step.
    int64_t run = 0, step = 0;
    Part part;
  };
  std::optional<Submitted> take();    // the oldest run, if it is done; then the queue has it no more
  std::optional<StepMetrics> next();  // the oldest step, if all of its runs are done
  bool empty() const { return runs_ == 0; }
  void release_all();  // the slots; no run may be under way
  std::optional<int64_t> oldest() const;

 private:
  void release_oldest();

  Executor& executor_;
  data::Loader& loader_;
  int ahead_, slots_, offset_;
  bool scaled_ = false;                           // steps have a loss scale that adapts
  bool voted_ = false;                            // ranks may ask all to stop
  std::vector<std::string> added_;                // other metrics of the Programs that end a step
  std::array<Submitted, kMostRuns> submitted_{};  // a ring
  int first_run_ = 0, runs_ = 0;
  int done_ = 0;                          // so many of the oldest were waited for
  std::array<int, kMostSlots> moving_{};  // a ring
  int first_slot_ = 0, held_ = 0;
  double loss_ = 0;  // of the oldest step, so far
};

}  // namespace lathe
