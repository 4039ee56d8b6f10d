// curve: what memory costs in time: plans of the same graphs under smaller and smaller budgets.
#pragma once

#include <vector>

#include "plan/plan.h"

namespace lathe {

// What a device does in a second, to predict with.
struct Rates {
  double flops = 0;  // of arithmetic
  double bytes = 0;  // of memory, read and written
};

Rates rates_of(const Target&);  // its peaks; those of a small host where they are not known

struct CurvePoint {         // A plan under one budget.
  int64_t budget = 0;       // bytes of arena that were allowed
  int64_t arena_bytes = 0;  // and those that are needed
  int64_t activations = 0;  // bytes at the peak of the first graph
  int64_t launches = 0;     // of the first graph, that run again
  double flops = 0;         // of the first graph, with those that run again
  double extra_flops = 0;   // of those alone
  double seconds = 0;       // of the first graph: every launch at the rate of arithmetic or of memory, the slower
};

// From the arena that needs no recompute down to the smallest there is, in equal steps. Points that say nothing new are
// left out. Each is what plan() makes of the same budget.
std::vector<CurvePoint> memory_curve(const std::vector<Graph>&, const Target&, const KernelTable&, const PlanOptions&,
                                     const Rates&, int points);

}  // namespace lathe
