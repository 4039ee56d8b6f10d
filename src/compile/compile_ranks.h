// compile for all ranks of a run: those whose Programs are the same are planned once.
#pragma once

#include <vector>

#include "base/part.h"
#include "compile/compile.h"

namespace lathe {

struct RankPlan {     // Ranks with the same parts of all batches and of all state.
  Part ranks;         // which
  Compiled compiled;  // for the first of them
};

// In the order of the ranks; the first has the largest parts. A plan differs from that of the next ranks by sizes
// alone.
std::vector<RankPlan> compile_ranks(const Recipe&, const DataSpec&, const CompileOptions&, int ranks);

}  // namespace lathe
