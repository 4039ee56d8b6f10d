// Traces as JSON in Chrome's trace event format, which Perfetto and chrome://tracing show: a process for each rank, a
// row for each of its lanes, a complete event ("X") for each span, in microseconds from the first one of all. Kernels
// carry their node and what they achieved: MFLOP, GFLOP/s and GB/s, where a span is all of the node's time; parts of
// one carry the node alone.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/trace.h"

namespace lathe::io {

using TraceFacts = std::vector<std::pair<std::string, std::string>>;  // about the whole: recipe, device, ...

struct TraceProcess {
  std::string name;
  TraceData data;  // all on one clock
};

std::string trace_json(std::span<const TraceProcess>, const TraceFacts&);

// The ranks of a process as traces of their own, by rank. Lanes of no rank are the first one's: of a process with one
// rank, all.
std::vector<TraceData> split_ranks(const TraceData&);

// A trace as text, to be sent to another rank, and back.
std::string trace_text(const TraceData&);
TraceData parse_trace_text(std::string_view);

}  // namespace lathe::io
