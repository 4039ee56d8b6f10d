// How many threads a rank may start, so that the ranks of a host together have one for each of its processors.
#pragma once

#include <string>

#include "comm/launch.h"

namespace lathe::comm {

struct Cores {       // Logical processors, as this process sees them.
  int mask = 1;      // on which it may run (affinity)
  int all = 1;       // on which a process of its control group may run: what the ranks of the host share
  double quota = 0;  // processor time of its control group per time, for all of its processes; 0: no limit
  int per_task = 0;  // SLURM_CPUS_PER_TASK; 0: not set
  bool operator==(const Cores&) const = default;
};

// The arguments are /proc/self/cgroup and /sys/fs/cgroup but in tests.
Cores find_cores(const Lookup&, const std::string& membership_file, const std::string& root);
Cores find_cores();  // of this process

// At least 1. A rank has its mask, but no more than its share of what the ranks of the host have together: launchers
// that bind to sockets give several ranks one mask, those that do not bind give one to all.
int threads_per_rank(const Cores&, const Launch&);

}  // namespace lathe::comm
