// StepTimeline: one step of a run on ranks, from the trace of some (`lathe train --profile`): what each rank computed
// and sent when, and who waited for whom. Kept as timeline.json beside the trace; report.html draws it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/trace.h"

namespace lathe {

inline constexpr const char* kTimelineFile = "timeline.json";  // within a run directory

// What a piece of time is. The first three are those of the compute row, the others those of the communication row.
enum class StepPart { compute, exposed, data, transfer, waiting };
inline constexpr size_t kStepParts = 5;
// For people: "computes", "waits for communication", "waits for data", "moves bytes", "waits for the last rank".
const char* to_string(StepPart);

struct RankTimeline {
  struct Piece {
    StepPart part = StepPart::compute;
    double begin = 0, end = 0;  // seconds from the beginning of the step
  };
  std::string name;                       // "rank 2 on h3"
  std::vector<Piece> pieces;              // of the step, in the order of time; empty: not drawn
  std::array<double, kStepParts> sums{};  // seconds per step, over all steps of the trace
  // Seconds per step that another rank waited for this one, as it came last to a collective: the mean over the others.
  // Pauses between steps, of the one that writes a checkpoint, do not count.
  double late = 0;
  int64_t last = 0;  // collectives of the trace that it was the last to come to
};

struct StepTimeline {
  int64_t step = 0;         // counted from 1: the one of median length
  double seconds = 0;       // that it took, as the first rank counts
  int64_t steps = 0;        // in the trace
  int64_t collectives = 0;  // in the trace, of each rank
  double uncertainty = 0;   // seconds by which the clocks of ranks may differ
  std::vector<RankTimeline> ranks;
};

struct NamedTrace {
  std::string name;
  const TraceData* data = nullptr;  // on the first rank's clock
};

// Nothing: fewer than two ranks, or no step. Steps are those of the first rank; a step's label ends in its number.
std::optional<StepTimeline> find_timeline(std::span<const NamedTrace> ranks);

std::string to_json(const StepTimeline&);
std::optional<StepTimeline> parse_timeline(std::string_view json);  // nothing: it is none

}  // namespace lathe
