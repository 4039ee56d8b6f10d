// Normal numbers of a counter stream with vectors: those of Box-Muller on base/philox.h.
#pragma once

#include "backend/cpu/random_uniform.h"

namespace lathe::cpu {

inline constexpr int64_t kNormalBlock = kUniformBlock / 2;

// y[i] = scale * sqrt(-2 ln(1 - u(2k))) cos(2 pi u(2k + 1)) with k = begin + i and u the stream's numbers in [0, 1),
// for i < n <= kNormalBlock; begin is a multiple of kNormalBlock. Computed in f64 and rounded once.
void fill_normal(const UniformKey&, double scale, float* y, int64_t begin, int64_t n);

}  // namespace lathe::cpu
