// exposed: how long a planned step takes on ranks, and how much of its communication compute does not hide. The lanes
// of the Program are simulated launch by launch, with the waits that the plan placed (plan/lanes.h). A prediction: it
// knows rates, not kernels.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "plan/curve.h"
#include "plan/program.h"

namespace lathe {

struct StepTimes {           // Of one rank.
  double seconds = 0;        // of the step
  double compute = 0;        // seconds in which the compute lane is at work
  double communication = 0;  // seconds in which the communication lane is
  double exposed = 0;        // seconds in which the compute lane waits
  double bytes_sent = 0;     // to other ranks
  int64_t collectives = 0;   // launches that talk to other ranks
};

struct ScalingPoint {     // The same work for each rank, on so many of them.
  int64_t ranks = 1;      // of the run
  StepTimes times;        // then
  double efficiency = 1;  // work per second of a rank, as a share of what one rank alone does
};

// `ranks`: as if collectives were among so many, each with the batch that the Program has; 0: as it was planned.
StepTimes predict_times(const Program&, const Rates&, const Link&, int64_t ranks = 0);

// On 1, 2, 4, ... ranks up to `most`, which is among them. Buckets are those of the Program.
std::vector<ScalingPoint> predict_scaling(const Program&, const Rates&, const Link&, int64_t most = 1024);
std::string scaling_table(std::span<const ScalingPoint>);  // for people, a line each

}  // namespace lathe
