// The samples of an op as graphs that run: conformance tests, gradient checks, selftest and benchmarks draw from here.
#pragma once

#include "ir/graph.h"
#include "ir/interpret.h"

namespace lathe {

// One node of the op over inputs x0, x1, ... with results y0, y1, ...
Graph sample_graph(const OpDef&, const Sample&);
// Values within the ranges of the sample, exact in the type of each input; a function of the seed.
std::vector<HostTensor> sample_inputs(const Sample&, uint64_t seed);

}  // namespace lathe
