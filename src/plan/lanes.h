// lanes: which launches wait for which, so that lanes run side by side and a step has the bits of its launches one
// after the other.
//
// The order of a Program is one legal order, and lifetimes and places in the arena follow from it and from the lanes:
// what another lane reads and writes keeps its place until the compute lane has waited for it (plan/storage.h). A
// launch may still be given memory that a launch of another lane, earlier in that order, reads or writes: updates of
// state in place, or what one lane gives another. Such pairs wait for each other like those that hand on a value: both
// are found as bytes that one of them writes and the other touches. So lifetimes are about speed alone.
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
