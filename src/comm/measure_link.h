// measure_link: what a turn of a ring over a group takes, measured. Every rank calls it, and all get the same numbers:
// those of the slowest rank.
//
// Ranks send to their right neighbours and add up what comes from their left ones, all at once, as in a ring; but as
// many turns as the time allows, not as many as there are ranks. Of several rounds the shortest counts: the others are
// those of whoever else uses the machine.
#pragma once

#include "comm/group.h"

namespace lathe::comm {

struct LinkRates {       // Of a ring.
  double latency = 0;    // seconds of a turn beside those of its bytes
  double bandwidth = 0;  // bytes per second that a rank sends; 0: there is one rank
};

// Takes some 10 ms on one host and 35 ms over 1 Gbit/s, for any number of ranks that have a core each.
LinkRates measure_link(Group&);
Flow flow_of(const LinkRates&);  // how collectives should send over it

}  // namespace lathe::comm
