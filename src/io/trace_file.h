// A Trace as JSON in Chrome's trace event format, which Perfetto and chrome://tracing show: one process, one row for
// each lane, a complete event ("X") for each span, in microseconds from the first one. Kernels carry their node and
// what they achieved: MFLOP, GFLOP/s and GB/s, where a span is all of the node's time; parts of one carry the node
// alone.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "base/trace.h"

namespace lathe::io {

using TraceFacts = std::vector<std::pair<std::string, std::string>>;  // about the whole: recipe, device, ...

std::string trace_json(const Trace&, const std::string& process, const TraceFacts&);

}  // namespace lathe::io
