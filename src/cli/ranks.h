// Commands on ranks that a launcher started as processes: who speaks when one fails, and how all leave.
#pragma once

#include <lathe/lathe.h>

namespace lathe::cli {

// Ranks that are processes leave together, after a step. When one has left, a launcher sends signals to those that are
// on their way out: they mean nothing, up to the last instruction.
void hold_signals();

// One line, at once: a launcher may end this process a moment after another one. The world outlives the callback.
void say_who_failed(comm::World&);

// After a failure that the user knows of; the exit code. A launcher may end all when the first one leaves: that should
// be the one that says why.
int leave_together(comm::World&, const Error&);

}  // namespace lathe::cli
