// Expands `grad` nodes into the graphs of their derivatives, innermost first, so that nested grads are higher
// derivatives. Reverse mode by the ops' vjp rules; a composite without a vjp is expanded and its expansion
// differentiated; an op with neither stops the flow (its result is piecewise constant).
// Runs first: everything after it needs an executable graph.
#pragma once

#include "passes/pass.h"

namespace lathe {

Graph autodiff(Graph, const PassContext&);

inline constexpr std::string_view kBackwardOrigin = "grad:";  // before the origin of each node that autodiff adds

}  // namespace lathe
