// Moves and cancels transposes: pairs compose, one in front of a matmul becomes its trans flag, others sink below
// elementwise nodes towards the next transpose. No number changes, not even the order of a sum.
// Input: any verified graph. Runs before canonicalize, which clears the reshapes that it leaves.
#pragma once

#include "passes/pass.h"
#include "passes/rules.h"

namespace lathe {

Graph layout(Graph, const PassContext&);
std::span<const Rule> layout_rules();

}  // namespace lathe
