// conv2d and its gradients as products; depthwise convolution and pooling as kernels of their own.
#pragma once

#include <vector>

#include "backend/kernels/product_calls.h"
#include "ir/graph.h"
#include "ops/conv2d.h"

namespace lathe {

enum class ConvPass { forward, dx, dw };

// With output 0 and inputs 0 and 1 of the node. One product, but dx of a strided convolution: one per class of pixels.
std::vector<Product> conv2d_products(ConvPass, const TensorType& x0, const TensorType& x1, const Conv2dParams&);

}  // namespace lathe
