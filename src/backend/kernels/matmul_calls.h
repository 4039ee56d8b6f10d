// Launches of matmul.k.
#pragma once

#include <vector>

#include "backend/kernels/call.h"
#include "ops/matmul.h"

namespace lathe {

// `vector_bytes`: width of the device's vector registers; the narrow form's register tile follows it.
std::vector<KernelCall> matmul_calls(DType, const Shape& a, const Shape& b, const MatmulParams&, LaunchStyle,
                                     int vector_bytes);

}  // namespace lathe
