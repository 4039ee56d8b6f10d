// Casts the inputs of products to a 16-bit type: nodes with the trait kProduct and the role of the model compute in
// PassContext::precision, and their results are f32 again. Composites with products inside are opened. Losses, metrics,
// updates, parameters and all that is not a product stay f32; autodiff, which runs after it, finds the casts and
// computes the gradients of products in that type too. Input: a graph before autodiff. Returns it unchanged for f32.
#pragma once

#include "passes/pass.h"

namespace lathe {

Graph precision(Graph, const PassContext&);

}  // namespace lathe
