// Merges nodes that compute the same value: equal op, parameters and inputs. Random ops are never merged, and a node
// that writes state is not merged away: each state keeps its own writer. Input: any verified graph. Keeps: order of
// outputs. Runs before fuse (which would hide equal sub-expressions inside one node).
#pragma once

#include "passes/pass.h"

namespace lathe {

Graph cse(Graph, const PassContext&);

}  // namespace lathe
