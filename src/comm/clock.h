// Clocks of ranks. The steady clock of a host counts from its own beginning: times of different hosts can be compared
// once they are moved to one clock, the first rank's.
#pragma once

#include <cstdint>
#include <functional>

#include "comm/group.h"

namespace lathe::comm {

struct ClockOffset {        // From a rank's clock to the first rank's.
  int64_t ns = 0;           // to be added to times of this rank
  int64_t uncertainty = 0;  // ns by which that may be wrong
};

// Every rank calls it, with the same clock. From the fastest of some round trips to the first rank, whose answer is
// taken to be given in the middle of it (Cristian, 1989): wrong by half of that trip at most, and by what the clocks
// drift apart before or after. Clocks that agree so far are taken for one: ranks of one host have no offset.
ClockOffset find_clock_offset(Group&, const std::function<int64_t()>& now_ns);

}  // namespace lathe::comm
