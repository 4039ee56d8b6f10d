// What a run says of itself before its first step.
#pragma once

#include <string>
#include <vector>

#include "compile/compile.h"
#include "rundir/progress.h"

namespace lathe {

// Its sizes; the link between ranks; what the device said of kernels (Device::notes); what a budget of memory costs.
void note_start(const Compiled&, const std::vector<std::string>& device_notes, ProgressSink&);

}  // namespace lathe
