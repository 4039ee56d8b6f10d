// overlap: the order of nodes, once it is known which run on other lanes than compute (collectives). They start as
// early as their inputs allow. What reads their results comes late: when nothing else is left to compute, or when so
// many bytes of them are in flight that no more may be (PlanOptions::in_flight). So updates of early gradients are what
// the compute lane does while the last bucket is under way. Results that another collective depends on are read where
// they were.
//
// A collective is in flight from its start until the first that reads its results; no nodes for that are in the
// graph: its place is its start, and its first reader waits for its end (plan/lanes.h). plan/storage.h keeps its
// memory for as long.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace lathe {

// `before`: by node, what must come first. `order`: one that allows it, which is kept as far as the above goes.
// `lanes`: by node.
std::vector<int32_t> overlap_lanes(const Graph&, std::span<const std::vector<int32_t>> before,
                                   std::span<const int32_t> order, std::span<const Lane> lanes, int64_t in_flight);

}  // namespace lathe
