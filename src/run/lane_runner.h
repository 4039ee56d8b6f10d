// LaneRunner: runs the launches of Programs that have several lanes, with the waits that the plan placed
// (plan/lanes.h): on the streams of a device, joined by events; or, where streams work at once, on a thread for each
// lane beside compute. All that it needs is made by the constructor.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/trace.h"
#include "plan/program.h"
#include "run/leaving.h"

namespace lathe {

// A Program with its kernels; what it points to outlives the runner.
struct BoundLaunches {
  const Program* program = nullptr;
  const std::vector<std::unique_ptr<Kernel>>* kernels = nullptr;
  const std::vector<int32_t>* labels = nullptr;  // in the Trace; empty where there is none
  const std::vector<bool>* changes = nullptr;    // by launch, as Leaving::leaves() wants it
};

class LaneRunner {
 public:
  virtual ~LaneRunner() = default;
  // All launches of a Program, by its index. What the compute lane is given next starts when all lanes are done.
  // False: it was left (run/leaving.h).
  virtual bool run(size_t program) = 0;
  virtual double wait_seconds() const { return 0; }  // of the compute lane for others, where the host knows it
};

// Null where no Program has several lanes. `leaving` outlives the runner.
std::unique_ptr<LaneRunner> make_lane_runner(Device&, std::vector<BoundLaunches>, Leaving& leaving);

// Runs kernels, and adds them to the Trace where there is one and it is on. Queues that do not know their times are
// waited for after each kernel.
class TracedLaunches {
 public:
  TracedLaunches(Device&, const std::vector<int32_t>& labels);
  ~TracedLaunches() {
    if (trace_) trace_->set_current(0);
  }
  TracedLaunches(const TracedLaunches&) = delete;
  TracedLaunches& operator=(const TracedLaunches&) = delete;
  // Launch i. `row` of the trace; -1: the calling thread's.
  void run(Kernel& kernel, size_t i, Stream& stream, int32_t row = -1) {
    if (!trace_)
      kernel.run(stream);
    else
      run_traced(kernel, i, stream, row);
  }

 private:
  void run_traced(Kernel&, size_t i, Stream&, int32_t row);

  const std::vector<int32_t>& labels_;
  Trace* trace_;
  bool by_itself_;  // the device reports to the Trace
};

}  // namespace lathe
