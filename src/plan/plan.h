// plan: graphs -> ProgramSet. Pure and deterministic; needs a Target and a kernel table, no device. Expands nodes that
// no kernel accepts, schedules, chooses kernels, and assigns memory.
#pragma once

#include <vector>

#include "plan/program.h"

namespace lathe {

struct PlanOptions {
  bool allow_fallback = false;  // let the ref backend's kernels run what the target has no kernel for
  int64_t budget = 0;           // bytes of arena, if less than the target's memory; 0: that. UserError when it needs more
};

// All graphs must name their state inputs alike; equal names have equal types and share one place.
ProgramSet plan(std::vector<Graph> graphs, const Target&, const KernelTable&, const PlanOptions& = {});

}  // namespace lathe
