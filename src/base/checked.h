// Arithmetic on sizes that came from outside: every overflow is an error, never a wrap.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/error.h"

namespace lathe {

inline std::optional<int64_t> try_add(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_add_overflow(a, b, &r)) return std::nullopt;
  return r;
}

inline std::optional<int64_t> try_mul(int64_t a, int64_t b) {
  int64_t r;
  if (__builtin_mul_overflow(a, b, &r)) return std::nullopt;
  return r;
}

// `what` names the quantity in the error.
inline int64_t checked_add(int64_t a, int64_t b, std::string_view what) {
  auto r = try_add(a, b);
  LATHE_USER_CHECK(r, "{}: {} + {} overflows 64 bits", what, a, b);
  return *r;
}

inline int64_t checked_mul(int64_t a, int64_t b, std::string_view what) {
  auto r = try_mul(a, b);
  LATHE_USER_CHECK(r, "{}: {} * {} overflows 64 bits", what, a, b);
  return *r;
}

inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t a, int64_t b) { return ceil_div(a, b) * b; }

}  // namespace lathe
