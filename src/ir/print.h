// Text form of graphs: print and parse are inverse, up to the numbering of values.
//
//   graph train {
//     input %0: f32[10, 784] param "fc.weight"
//     input %1: f32[32, 784] batch "x"
//     %2: f32[32, 10] = matmul(%1, %0) {trans_b=true} @"fc"
//     output %2 result "logits"
//     output %9 state "fc.weight" updates %0
//   }
//
// Nodes end with their role where it is not that of the model: `@"update" as update`. A set is its state table and its
// graphs; what a row leaves out is as a row starts:
//
//   set {
//     state f32[10, 784] param "fc.weight" {init="uniform", value=0.1, gated=true}
//     graph train { ... }
//   }
#pragma once

#include <string>
#include <string_view>

#include "ir/step_set.h"

namespace lathe {

std::string print(const Graph&);  // parse_graph reads it back
// One node with the given value numbers, as it stands in print(); for errors.
std::string print_node(const Graph&, const Node&);

// UserError with line and column on anything that is not a graph; types are checked against the ops' rules.
Graph parse_graph(std::string_view text, const OpRegistry&);

std::string print(const StepSet&);                                 // parse_step_set reads it back
StepSet parse_step_set(std::string_view text, const OpRegistry&);  // UserError as parse_graph

}  // namespace lathe
