// Drops nodes whose results nobody needs. Input: any verified graph. Keeps: inputs, outputs, the order of nodes.
// Runs before fuse, which asks who else reads a value.
#pragma once

#include "passes/pass.h"

namespace lathe {

Graph dce(Graph, const PassContext&);

}  // namespace lathe
