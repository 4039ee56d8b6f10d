// Division: a graph of the whole step as one rank runs it. Every value lies as its label says (labels.h); where a
// reader wants another placement than the value has, a collective stands between them.
#pragma once

#include "passes/partition/labels.h"

namespace lathe {

// The graph of mesh.rank. `labels` are of this graph, and no node is open. State is gathered for forward and again for
// backward: nothing whole is kept in between.
Graph divide(const Graph&, const Labels&, const Mesh&, const Placements& inputs, const Placements& outputs);

}  // namespace lathe
