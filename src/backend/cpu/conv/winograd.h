// 3x3 convolution without stride and its gradient by x, by Winograd's minimal filtering F(2x2, 3x3) (Lavin and Gray,
// 2016): 16 products for four results instead of 36. Layouts as in conv_gemm.h. The summation order of an element
// depends on the channels alone. f32 only: rounding is about twice that of the direct sum.
#pragma once

#include <string>

#include "backend/cpu/conv/conv_gemm.h"

namespace lathe::cpu {

// Empty, or why the direct convolution is taken. The same for every batch size: bits must not depend on it.
std::string winograd_declines(ConvPass, const ConvGeometry&);

// Bytes of workspace (aligned to 64) of one of the functions below.
int64_t winograd_workspace(ConvPass, const ConvGeometry&, int threads);

void winograd_forward(ThreadPool&, const ConvGeometry&, float* y, const float* x, const float* w,
                      const Epilogue<float>&, std::span<std::byte> workspace);
void winograd_dx(ThreadPool&, const ConvGeometry&, float* dx, const float* dy, const float* w,
                 std::span<std::byte> workspace);

}  // namespace lathe::cpu
