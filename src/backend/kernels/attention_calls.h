// Launches of attention.k: attention and attention_grad.
#pragma once

#include <string>
#include <vector>

#include "backend/kernels/product_calls.h"
#include "ir/graph.h"

namespace lathe {

std::string attention_reason(ArgTypes in);  // "" or why the text does not take heads of this width
// Tensors of 16 bits, which only the wide form takes, are read and written as they are stored.
std::vector<KernelCall> attention_calls(const Node&, ArgTypes in, ArgTypes out, const ProductTiles&);

}  // namespace lathe
