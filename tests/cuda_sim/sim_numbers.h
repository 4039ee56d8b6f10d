// Numbers of the types that cuBLASLt and cuDNN compute with, as doubles.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "backend/cuda/cuda_abi.h"

namespace lathe::sim {

inline int type_size(int type) { return type == cuda::kR64F ? 8 : type == cuda::kR32F ? 4 : 2; }
inline bool known_type(int type) {
  return type == cuda::kR32F || type == cuda::kR64F || type == cuda::kR16F || type == cuda::kR16BF;
}

inline float from_half(uint16_t h) {
  const int exponent = h >> 10 & 31, mantissa = h & 1023;
  const float v = exponent == 31  ? (mantissa ? NAN : INFINITY)
                  : exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -24)
                                  : std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  return h & 0x8000 ? -v : v;
}
inline uint16_t to_half(float f) {
  const auto sign = static_cast<uint16_t>(std::signbit(f) ? 0x8000 : 0);
  if (std::isnan(f)) return sign | 0x7e00;
  const float a = std::fabs(f);
  if (a >= 65520.0f) return sign | 0x7c00;
  int exponent = 0;
  std::frexp(a, &exponent);
  // Spacing of halfs around a: 2^(exponent - 11), not finer than 2^-24. nearbyint rounds to even.
  const int spacing = std::max(exponent - 11, -24);
  const float rounded = std::ldexp(std::nearbyint(std::ldexp(a, -spacing)), spacing);
  int e = 0;
  std::frexp(rounded, &e);
  if (rounded == 0) return sign;
  if (e - 1 < -14) return static_cast<uint16_t>(sign | static_cast<int>(std::ldexp(rounded, 24)));
  return static_cast<uint16_t>(sign | ((e - 1 + 15) << 10) | (static_cast<int>(std::ldexp(rounded, 11 - e)) - 1024));
}
// Round to nearest even on the top bits of a float.
inline float round_bits(float f, int dropped) {
  if (!std::isfinite(f)) return f;
  uint32_t u = std::bit_cast<uint32_t>(f);
  u += (1u << (dropped - 1)) - 1 + (u >> dropped & 1);
  return std::bit_cast<float>(u >> dropped << dropped);
}

inline double load_number(const void* base, int64_t i, int type) {
  const char* p = static_cast<const char*>(base) + i * type_size(type);
  if (type == cuda::kR64F) {
    double v;
    std::memcpy(&v, p, 8);
    return v;
  }
  if (type == cuda::kR32F) {
    float v;
    std::memcpy(&v, p, 4);
    return v;
  }
  uint16_t v;
  std::memcpy(&v, p, 2);
  return type == cuda::kR16F ? from_half(v) : std::bit_cast<float>(static_cast<uint32_t>(v) << 16);
}

inline void store_number(void* base, int64_t i, int type, double value) {
  char* p = static_cast<char*>(base) + i * type_size(type);
  const float f = static_cast<float>(value);
  if (type == cuda::kR64F)
    std::memcpy(p, &value, 8);
  else if (type == cuda::kR32F)
    std::memcpy(p, &f, 4);
  else {
    const uint16_t h =
        type == cuda::kR16F ? to_half(f) : static_cast<uint16_t>(std::bit_cast<uint32_t>(round_bits(f, 16)) >> 16);
    std::memcpy(p, &h, 2);
  }
}

}  // namespace lathe::sim
