// Element types.
//
// f16 (IEEE half) and bf16 (the upper half of an f32) are storage. Every op computes such values in f32 - sums,
// products and norms accumulate in f32 - and rounds once, when it stores its result. Each node of a graph does so, also
// inside of a fused node: fusing never changes a number, and `fused` and plain graphs agree to the bit where their f32
// values do. What should stay in f32 between nodes is cast to f32 and back in the graph, where it can be seen. A
// composite counts as one op: its expansion computes in f32 (ops/expand_nodes.h).
#pragma once

#include <bit>
#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>

namespace lathe {

enum class DType : uint8_t {  // Types of elements.
  f32,                        // 32-bit float
  f64,                        // 64-bit float
  i32,                        // 32-bit integer
  i64,                        // 64-bit integer
  u8,                         // byte from 0 to 255
  b8,                         // boolean in a byte, 0 or 1
  f16,                        // IEEE half precision: storage alone
  bf16,                       // upper half of an f32: storage alone
};

// Every type, for loops over them.
inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::i32, DType::i64,
                                       DType::u8,  DType::b8,  DType::f16, DType::bf16};

int64_t size_of(DType);                              // bytes of one element
std::string_view to_string(DType);                   // "f32", ..., "bool"
std::optional<DType> parse_dtype(std::string_view);  // of to_string's words; nothing otherwise
// One of the two types that are storage alone.
inline bool is_16bit(DType t) { return t == DType::f16 || t == DType::bf16; }
inline bool is_float(DType t) { return t == DType::f32 || t == DType::f64 || is_16bit(t); }  // of any width
// The type in which values of `t` are computed: f32 for the 16-bit floats, else `t`.
inline DType compute_type(DType t) { return is_16bit(t) ? DType::f32 : t; }

// Rounds a value held in f64 to what `t` can store: the reference interpreter's store. A 16-bit type is reached through
// f32, as on every device.
double round_to(DType t, double value);

// Bits of the 16-bit types. Rounds to nearest, ties to even; too large becomes infinite; NaN stays NaN. No step depends
// on f32 denormals, which worker threads flush.
inline float float_of_f16(uint16_t h) {
  constexpr uint32_t kExponent = 0x7c00u << 13;
  uint32_t u = (h & 0x7fffu) << 13;
  const uint32_t exponent = u & kExponent;
  u += (127u - 15u) << 23;
  if (exponent == kExponent) {
    u += (128u - 16u) << 23;
  } else if (exponent == 0) {
    u = std::bit_cast<uint32_t>(std::bit_cast<float>(u + (1u << 23)) - std::bit_cast<float>(113u << 23));
  }
  return std::bit_cast<float>(u | (h & 0x8000u) << 16);
}

inline uint16_t f16_of_float(float f) {
  constexpr uint32_t kOverflow = (127u + 16u) << 23, kSmallestNormal = 113u << 23,
                     kDenormal = (127u - 15u + 23u - 10u + 1u) << 23;
  const uint32_t bits = std::bit_cast<uint32_t>(f), sign = bits & 0x80000000u;
  uint32_t u = bits ^ sign;
  if (u >= kOverflow) {
    u = u > 0x7f800000u ? 0x7e00u : 0x7c00u;
  } else if (u < kSmallestNormal) {
    // The addition rounds at the place of the last bit.
    u = std::bit_cast<uint32_t>(std::bit_cast<float>(u) + std::bit_cast<float>(kDenormal)) - kDenormal;
  } else {
    u = (u + ((15u - 127u) << 23) + 0xfffu + ((u >> 13) & 1u)) >> 13;
  }
  return static_cast<uint16_t>(u | sign >> 16);
}

inline float float_of_bf16(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }  // exact

inline uint16_t bf16_of_float(float f) {  // rounds to nearest, ties to even
  const uint32_t u = std::bit_cast<uint32_t>(f);
  if ((u & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(u >> 16 | 0x40u);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

template <class T>
concept Arithmetic = std::is_arithmetic_v<T>;

struct Half {         // An f16 in memory: converts, and computes nothing itself.
  uint16_t bits = 0;  // IEEE half
  Half() = default;
  template <Arithmetic T>
  explicit Half(T v) : bits(f16_of_float(static_cast<float>(v))) {}  // rounds
  template <Arithmetic T>
  explicit operator T() const {  // exact for float and double
    return static_cast<T>(float_of_f16(bits));
  }
};

struct BFloat16 {     // A bf16 in memory: converts, and computes nothing itself.
  uint16_t bits = 0;  // the upper half of an f32
  BFloat16() = default;
  template <Arithmetic T>
  explicit BFloat16(T v) : bits(bf16_of_float(static_cast<float>(v))) {}  // rounds
  template <Arithmetic T>
  explicit operator T() const {  // exact for float and double
    return static_cast<T>(float_of_bf16(bits));
  }
};

// The C++ type in which values stored as T are computed.
template <class T>
using Compute = std::conditional_t<std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>, float, T>;

// Calls f(T{}) with the C++ type in which values of `t` are computed; b8 is uint8_t with values 0 and 1.
template <class F>
decltype(auto) dispatch_compute(DType t, F&& f) {
  switch (t) {
    case DType::f64: return f(double{});
    case DType::i32: return f(int32_t{});
    case DType::i64: return f(int64_t{});
    case DType::u8:
    case DType::b8: return f(uint8_t{});
    case DType::f32:
    case DType::f16:
    case DType::bf16: break;
  }
  return f(float{});
}

// The same with the type in which values of `t` are stored.
template <class F>
decltype(auto) dispatch(DType t, F&& f) {
  if (t == DType::f16) return f(Half{});
  if (t == DType::bf16) return f(BFloat16{});
  return dispatch_compute(t, f);
}

// The DType of a C++ type that holds its elements.
template <class T>
constexpr DType dtype_of() {
  if constexpr (std::is_same_v<T, float>)
    return DType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DType::f64;
  else if constexpr (std::is_same_v<T, int32_t>)
    return DType::i32;
  else if constexpr (std::is_same_v<T, int64_t>)
    return DType::i64;
  else {
    static_assert(std::is_same_v<T, uint8_t>, "elements are float, double, int32_t, int64_t or uint8_t");
    return DType::u8;
  }
}

}  // namespace lathe
