// Philox 4x32-10 with vectors: the same numbers as base/philox.h.
#pragma once

#include <array>
#include <cstdint>

namespace lathe::cpu {

struct UniformKey {
  std::array<uint32_t, 2> key;
  uint32_t a, b;
};
// That of CounterRng(seed, stream, a, b).
inline UniformKey uniform_key(uint64_t seed, uint32_t stream, uint32_t a, uint32_t b) {
  return {{static_cast<uint32_t>(seed) ^ (stream * 0x9E3779B9u), static_cast<uint32_t>(seed >> 32) ^ stream}, a, b};
}

inline constexpr int64_t kUniformBlock = 1024;

// y[i] = number begin + i in [0, 1), for i < n <= kUniformBlock; begin is a multiple of kUniformBlock.
void fill_uniform(const UniformKey&, float* y, int64_t begin, int64_t n);
// y[i] = number begin + i < rate ? 0 : x[i] * scale, under the same conditions.
void drop_uniform(const UniformKey&, float* y, const float* x, int64_t begin, int64_t n, float rate, float scale);

}  // namespace lathe::cpu
