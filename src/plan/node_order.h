// order_nodes: the order in which nodes run. Readers of state come before the node that writes its update; updates run
// as early as they can, so that gradients die there; among a few orders the one with the lowest peak of scratch memory
// is taken. Where some run on other lanes, plan/overlap.h has the last word.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "plan/storage.h"

namespace lathe {

struct NodeOrder {
  std::vector<int32_t> order;  // node indices
  Storage storage;             // of that order
  // False when some node reads both the old and the new value of a state: then that update cannot wait for all readers.
  bool readers_first = true;
};

// `workspace` and `lanes` by node; `in_flight`: see PlanOptions.
NodeOrder order_nodes(const Graph&, const StorageFacts&, std::span<const int64_t> workspace, int64_t alignment,
                      std::span<const Lane> lanes, int64_t in_flight);

}  // namespace lathe
