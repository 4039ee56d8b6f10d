// vote: every rank may ask all to stop, and all know it after the same step. Graphs that write parameters, and those
// that only measure (evaluation), get a step input "stop", 1 on ranks that ask and 0 on others, and a metric of that
// name: its sum over all ranks. It travels with the step's own collectives, so no rank can be a step further than
// another when it learns of it, whatever the network does. A mesh of one rank changes nothing.
#pragma once

#include "passes/pass.h"

namespace lathe {

inline constexpr const char* kVote = "stop";  // the input and the metric

StepSet vote(StepSet, const PassContext&);

}  // namespace lathe
