// Element types.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace lathe {

enum class DType : uint8_t { f32, f64, i32, i64, u8, b8 };

inline constexpr DType kAllDTypes[] = {DType::f32, DType::f64, DType::i32, DType::i64, DType::u8, DType::b8};

int64_t size_of(DType);
std::string_view to_string(DType);  // "f32", ..., "bool"
std::optional<DType> parse_dtype(std::string_view);
inline bool is_float(DType t) { return t == DType::f32 || t == DType::f64; }

// Rounds a value held in f64 to what `t` can store: the reference interpreter's store.
double round_to(DType t, double value);

// Calls f(T{}) with the C++ type of `t`; b8 is stored as uint8_t with values 0 and 1.
template <class F>
decltype(auto) dispatch(DType t, F&& f) {
  switch (t) {
    case DType::f64: return f(double{});
    case DType::i32: return f(int32_t{});
    case DType::i64: return f(int64_t{});
    case DType::u8:
    case DType::b8: return f(uint8_t{});
    case DType::f32: break;
  }
  return f(float{});
}

}  // namespace lathe
