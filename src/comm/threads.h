// Ranks that are threads of one process. A message is one copy from the sender's bytes to the receiver's, by the one of
// the two that comes second.
//
// Faults can be planted, by a seed: they are functions of (seed, sender, number of the message), so a failure that a
// seed finds comes again with it, but for the order in which threads run.
#pragma once

#include <memory>
#include <vector>

#include "comm/group.h"

namespace lathe::comm {

struct Faults {            // Chances of a message, and of one rank.
  uint64_t seed = 0;       // of what follows
  double delay = 0;        // it comes late
  double longest = 1e-3;   // by as many seconds at most
  double drop = 0;         // it never comes
  double flip = 0;         // one of its bits is another one
  int dying = -1;          // the rank that dies without a word; -1: none
  int64_t dies_after = 0;  // messages that it sent
};

struct ThreadOptions {     // How ranks in threads are made.
  double timeout = 120;    // seconds that a rank waits for a message
  bool checksums = false;  // messages are compared with what was sent
  Faults faults = {};      // for tests
};

// What a rank that dies by Faults::dying throws: it is gone, nobody is told.
struct RankDied {
  int rank;  // which
};

// One group for each rank. They may be used by different threads, each by one at a time; the last one that is destroyed
// takes the messages with it.
std::vector<std::unique_ptr<Group>> thread_groups(int ranks, const ThreadOptions& = {});

}  // namespace lathe::comm
