// Replaces composites that the target has no kernel for by their expansions, until none is left. `fused` stays: the
// plan expands it where no kernel accepts it. Input: a graph without `grad`, whose composites autodiff wants to see
// whole. Runs before everything that looks at primitives.
#pragma once

#include "passes/pass.h"

namespace lathe {

Graph expand(Graph, const PassContext&);

}  // namespace lathe
