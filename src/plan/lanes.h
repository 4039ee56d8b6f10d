// lanes: which launches wait for which, so that lanes run side by side and a step has the bits of its launches one
// after the other.
//
// The order of a Program is one legal order, and lifetimes and places in the arena follow from it alone. So a launch
// may be given memory that a launch of another lane, earlier in that order, still reads or writes. Such pairs wait for
// each other like those that hand on a value: both are found as bytes that one of them writes and the other touches. To
// let values live until all lanes are known to be done with them would be the other way: it takes more memory, the
// search for recompute would have to follow it to the byte, and updates of state in place need the waits all the same.
//
// A step begins on the compute lane, which puts the inputs in place, and ends there, when all lanes are done: nothing
// of another lane is under way between steps, and whatever the host reads or writes then is ordered by the compute
// lane.
#pragma once

#include "plan/program.h"

namespace lathe {

// Sets `waits` and `signals` of the launches, `begin_signals` and `end_waits`, from the launches' lanes and places. No
// wait follows from the others and the order within lanes.
void place_waits(Program&);

}  // namespace lathe
