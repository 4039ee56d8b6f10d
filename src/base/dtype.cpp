#include "base/dtype.h"

#include <algorithm>
#include <cmath>

namespace lathe {

int64_t size_of(DType t) {
  return dispatch(t, [](auto v) { return static_cast<int64_t>(sizeof(v)); });
}

std::string_view to_string(DType t) {
  switch (t) {
    case DType::f32: return "f32";
    case DType::f64: return "f64";
    case DType::i32: return "i32";
    case DType::i64: return "i64";
    case DType::u8: return "u8";
    case DType::b8: return "bool";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
  }
  return "?";
}

std::optional<DType> parse_dtype(std::string_view s) {
  for (DType t : kAllDTypes)
    if (to_string(t) == s) return t;
  return std::nullopt;
}

namespace {
// Saturates, and maps NaN to 0: float to integer conversion without undefined behaviour.
double truncate(double v, double lo, double hi) { return std::isnan(v) ? 0.0 : std::clamp(std::trunc(v), lo, hi); }
}  // namespace

double round_to(DType t, double v) {
  switch (t) {
    case DType::f64: return v;
    case DType::f32: return static_cast<double>(static_cast<float>(v));
    case DType::i32: return truncate(v, -2147483648.0, 2147483647.0);
    case DType::i64: return truncate(v, -9223372036854775808.0, 9223372036854774784.0);
    case DType::u8: return truncate(v, 0.0, 255.0);
    case DType::b8: return v != 0.0 ? 1.0 : 0.0;
    case DType::f16: return static_cast<double>(Half(v));
    case DType::bf16: return static_cast<double>(BFloat16(v));
  }
  return v;
}

}  // namespace lathe
