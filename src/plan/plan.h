// plan: graphs -> ProgramSet. Pure and deterministic; needs a Target and a kernel table, no device. Expands nodes that
// no kernel accepts, schedules, chooses kernels, and assigns memory.
#pragma once

#include <vector>

#include "plan/program.h"

namespace lathe {

struct PlanOptions {            // What a plan may do.
  bool allow_fallback = false;  // let the ref backend's kernels run what the target has no kernel for
  // Bytes of arena, if less than the target's memory. Where the graphs need more, nodes run again (plan/recompute.h).
  // 0: the target's memory, and nothing runs again.
  int64_t budget = 0;
  // Bytes of collectives that may be under way at a time while the step goes on (plan/overlap.h): they take memory for
  // longer. 0: each is waited for where its result is read first. Not used where the budget is met without only.
  int64_t in_flight = int64_t{16} << 20;
};

// The graphs need more than there is.
class BudgetError : public UserError {
 public:
  // See the class.
  BudgetError(const std::string& message, int64_t smallest) : UserError(message, Exit::os_error), smallest_(smallest) {}
  int64_t smallest() const { return smallest_; }  // bytes of arena: a budget with which they can be planned

 private:
  int64_t smallest_;
};

// All graphs must name their state inputs alike; equal names have equal types and share one place.
// BudgetError when they do not fit.
ProgramSet plan(std::vector<Graph> graphs, const Target&, const KernelTable&, const PlanOptions& = {});

}  // namespace lathe
