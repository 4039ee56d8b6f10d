// The table of all ops, and how custom ops are added to it.
#pragma once

#include "ir/op_def.h"

namespace lathe {

// Every op, those of register_op included. The first call closes the table.
const OpRegistry& registry();

// Adds a custom op, which must live as long as the program. Building a graph with an op needs no registration;
// what the table serves does: text of graphs, the `ref` backend for ops that have no expand(), `check_gradient` and the
// conformance suite. UserError once the table is closed or where the name is taken. Not for several threads at once.
void register_op(const OpDef&);

}  // namespace lathe
