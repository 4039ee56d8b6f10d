// Memory of the process that Lathe did not request for the run: the program, its libraries, drivers, thread stacks, the
// graphs. Estimated for a plan, measured in a run.
#pragma once

#include <cstdint>

#include "compile/compile.h"

namespace lathe {

int64_t resident_now();   // bytes; 0 where the system does not say
int64_t resident_peak();  // of the process so far

// What will be outside of c.memory(). `held` are bytes of c.memory() that are already resident. Call it after compile
// and before a device is opened.
int64_t estimate_outside(const Compiled& c, int64_t held);

// What was outside: the peak less what the run requested from the host's memory. A device without memory of its own (a
// driver for this machine's processor) keeps its arena here as well.
int64_t measure_outside(const Compiled& c);

}  // namespace lathe
