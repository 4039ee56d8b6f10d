// Casts the inputs of products to a 16-bit type: nodes with the trait kProduct and the role of the model compute in
// PrecisionOptions::type, and their results are f32 again. Composites with products inside are opened. Losses, metrics,
// updates, parameters and all that is not a product stay f32; autodiff, which runs after it, finds the casts and
// computes the gradients of products in that type too. Input: a graph before autodiff. Returns it unchanged for f32.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct PrecisionOptions {         // Of the pass precision.
  std::string type = "f32";       // of products
  static void fields(auto&& f) {  // keys of recipes
    f("train.precision", &PrecisionOptions::type, allow::one_of({"f32", "bf16", "f16"}),
      "type to which operands and results of matrix products, convolutions and attention are rounded; sums are f32, as "
      "is on the cpu all inside of attention; weights and all else stay f32")
        .listed_after("train.swa_from");
  }
};
bool computes_in_f16(const PassOptions&);  // by them

Graph precision(Graph, const PassContext&);  // see the top of the file

}  // namespace lathe
