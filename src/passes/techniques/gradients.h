// What techniques see of a step: its gradients (ops/gradient.h), and which values depend on them.
#pragma once

#include <string>
#include <vector>

#include "ir/rewrite.h"

namespace lathe {

struct GradientNode {  // The gradient of one parameter.
  size_t node = 0;     // index in the graph
  ValueId in = -1;     // before techniques that stand behind the node
  ValueId out = -1;    // as the optimizer reads it
  std::string of;      // the parameter
};
std::vector<GradientNode> gradients_of(const Graph&);  // in the order of the graph
bool has_gradients(const Graph&);                      // a step that updates parameters
// UserError where a step updates a parameter or state of its optimizer by a `grad` that is not marked: the technique
// would pass it by.
void check_marked(const StepSet&, std::string_view technique);

// For each value: how many gradients it depends on: kNoGradient, the one gradient's place in gradients_of(), or
// kManyGradients.
inline constexpr int32_t kNoGradient = -1;                                                // it depends on none
inline constexpr int32_t kManyGradients = -2;                                             // on several
std::vector<int32_t> gradient_of_values(const Graph&, const std::vector<GradientNode>&);  // see above

// Sum of the squares of each gradient, and of all of them in their order: finite exactly when every element is (or its
// square overflows, which no update survives either).
struct SquaredGradients {
  Values each;  // scalars
  Value total;  // scalar
};
SquaredGradients squares(Edit&, const std::vector<GradientNode>&);  // appended to the graph

const Output* find_output(const Graph&, OutputKind, std::string_view name);  // or null
// A metric of the graph. UserError with the name of the pass where the graph has an output of that name.
void add_metric(Edit&, Value, std::string_view name, std::string_view pass);

}  // namespace lathe
