// Launches of matmul, and of fused nodes with a matmul or conv2d and elementwise work on its result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backend/kernels/product_calls.h"
#include "ir/graph.h"
#include "ops/fused.h"
#include "ops/matmul.h"

namespace lathe {

// With output 0 and inputs 0 and 1 of the node.
Product matmul_product(DType, const Shape& a, const Shape& b, const MatmulParams&);

// A fused node of kind "matmul" or "conv2d": the product with the rest of the body as its epilogue where the rest reads
// every operand by row and column; otherwise the product goes to an output, and a loop follows.
struct ProductChain {
  Product product;
  std::optional<LoopProgram> loop;  // the product is its input number `inputs`
  int inputs = 0;                   // of the node
};
// nullopt, with the reason, for bodies of another form.
std::optional<ProductChain> product_chain(const FusedParams&, std::string* reason);
int64_t chain_workspace(const ProductChain&);
std::vector<KernelCall> chain_calls(const ProductChain&, const ProductTiles&);

}  // namespace lathe
