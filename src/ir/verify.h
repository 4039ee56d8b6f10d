// verify: the constitution of the IR. The error names the pass, the rule, and shows the nodes around the culprit.
// Rules: every read is defined before; types equal what the op's rule gives; arity; every value defined once; names of
// inputs and of outputs are unique; a state output has the name and type of the input it updates, which is updated
// once.
#pragma once

#include <string_view>

#include "ir/step_set.h"

namespace lathe {

enum class Level {  // How far a graph is on its way.
  tensor,           // front end: `grad` and composites allowed
  lowered,  // before the plan: no `grad`, and every reader of a donated state value stands before its update's node
};

// Who made the graph: what is wrong with it is a UserError for graphs and passes of callers, a bug otherwise.
enum class MadeBy {
  lathe,   // the pipeline's own passes
  caller,  // the program that uses Lathe
};

// Throws where a rule is broken; `after` is the pass that left the graph so.
void verify(const Graph&, Level, std::string_view after = "", MadeBy = MadeBy::lathe);
// Ordered nodes (kOrdered) of `before` stand in the graph that became of it, in the same order; more may have come, and
// composites may have been expanded. Throws otherwise.
void verify_order(const Graph& before, const Graph& now, std::string_view after = "", MadeBy = MadeBy::lathe);
// All graphs, and the table: names of rows and graphs are unique, a state input has a row with its type and kind, and
// every row is an input of some graph. Other inputs have one kind and element type in all graphs. Of a row: its layout
// in files is one, its first value too, `like` and `of` name rows that fit, and its name in its file is its own.
void verify(const StepSet&, Level, std::string_view after = "", MadeBy = MadeBy::lathe);

}  // namespace lathe
