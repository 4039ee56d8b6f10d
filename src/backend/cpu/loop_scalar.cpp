// Plain loops for the types that are rare in training: f64, i32, i64, u8. Whole numbers wrap where they overflow, as
// two's complement does, except u8, which saturates.
#include <algorithm>
#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/cpu/loop_ops.h"
#include "base/error.h"

namespace lathe::cpu {
namespace {

using Mask = uint32_t;
constexpr Mask mask_of(bool b) { return b ? ~Mask{0} : Mask{0}; }

template <ScalarOp op, class T>
T compute(T a, T b) {
  // u8 is computed in int and saturated; the signed integers in their unsigned twins, where overflow is defined.
  if constexpr (std::is_same_v<T, uint8_t>) {
    const int x = a, y = b;
    if constexpr (op == ScalarOp::add) return static_cast<uint8_t>(std::min(x + y, 255));
    if constexpr (op == ScalarOp::sub) return static_cast<uint8_t>(std::max(x - y, 0));
    if constexpr (op == ScalarOp::mul) return static_cast<uint8_t>(std::min(x * y, 255));
    if constexpr (op == ScalarOp::neg) return 0;
    if constexpr (op == ScalarOp::abs) return a;
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    if constexpr (op == ScalarOp::add) return static_cast<T>(static_cast<U>(a) + static_cast<U>(b));
    if constexpr (op == ScalarOp::sub) return static_cast<T>(static_cast<U>(a) - static_cast<U>(b));
    if constexpr (op == ScalarOp::mul) return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
    if constexpr (op == ScalarOp::neg) return static_cast<T>(U{0} - static_cast<U>(a));
    if constexpr (op == ScalarOp::abs) return a < 0 ? static_cast<T>(U{0} - static_cast<U>(a)) : a;
  } else {
    if constexpr (op == ScalarOp::add) return a + b;
    if constexpr (op == ScalarOp::sub) return a - b;
    if constexpr (op == ScalarOp::mul) return a * b;
    if constexpr (op == ScalarOp::div) return a / b;
    if constexpr (op == ScalarOp::pow) return std::pow(a, b);
    if constexpr (op == ScalarOp::neg) return -a;
    if constexpr (op == ScalarOp::abs) return std::fabs(a);
    if constexpr (op == ScalarOp::exp) return std::exp(a);
    if constexpr (op == ScalarOp::expm1) return std::expm1(a);
    if constexpr (op == ScalarOp::log) return std::log(a);
    if constexpr (op == ScalarOp::log1p) return std::log1p(a);
    if constexpr (op == ScalarOp::sqrt) return std::sqrt(a);
    if constexpr (op == ScalarOp::rsqrt) return T{1} / std::sqrt(a);
    if constexpr (op == ScalarOp::tanh) return std::tanh(a);
    if constexpr (op == ScalarOp::sigmoid) return T{1} / (T{1} + std::exp(-a));
    if constexpr (op == ScalarOp::erf) return std::erf(a);
    if constexpr (op == ScalarOp::sin) return std::sin(a);
    if constexpr (op == ScalarOp::cos) return std::cos(a);
    if constexpr (op == ScalarOp::floor) return std::floor(a);
    if constexpr (op == ScalarOp::round) return std::nearbyint(a);
  }
  if constexpr (op == ScalarOp::max) return a > b || a != a ? a : b;
  if constexpr (op == ScalarOp::min) return a < b || a != a ? a : b;
}

template <ScalarOp op, class T>
void unary(void* y, const void* a, const void*, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<T*>(y)[i] = compute<op, T>(static_cast<const T*>(a)[i], T{});
}

template <ScalarOp op, class T>
void binary(void* y, const void* a, const void* b, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<T*>(y)[i] = compute<op, T>(static_cast<const T*>(a)[i], static_cast<const T*>(b)[i]);
}

template <ScalarOp op, class T>
void compare(void* y, const void* a, const void* b, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const T p = static_cast<const T*>(a)[i], q = b ? static_cast<const T*>(b)[i] : T{};
    bool r = false;
    if constexpr (op == ScalarOp::eq) r = p == q;
    if constexpr (op == ScalarOp::lt) r = p < q;
    if constexpr (op == ScalarOp::le) r = p <= q;
    if constexpr (op == ScalarOp::is_finite) r = std::isfinite(static_cast<double>(p));
    static_cast<Mask*>(y)[i] = mask_of(r);
  }
}

template <class T>
void select(void* y, const void* a, const void* b, const void* c, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    static_cast<T*>(y)[i] = static_cast<const Mask*>(a)[i] ? static_cast<const T*>(b)[i] : static_cast<const T*>(c)[i];
}

// Float to integer saturates and NaN gives 0, as round_to does.
template <class To, class From>
To convert_value(From v) {
  if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    if (v != v) return 0;
    constexpr From lo = static_cast<From>(std::numeric_limits<To>::min());
    constexpr From hi = static_cast<From>(std::numeric_limits<To>::max());
    if (v <= lo) return std::numeric_limits<To>::min();
    if (v >= hi) return sizeof(To) == 8 ? static_cast<To>(9223372036854774784) : std::numeric_limits<To>::max();
    return static_cast<To>(v);
  } else if constexpr (std::is_integral_v<From> && std::is_integral_v<To> && sizeof(To) < sizeof(From)) {
    return static_cast<To>(std::clamp<From>(v, std::numeric_limits<To>::min(), std::numeric_limits<To>::max()));
  } else {
    return static_cast<To>(v);
  }
}

template <class To, class From>
void convert(void* y, const void* a, const void*, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<To*>(y)[i] = convert_value<To, From>(static_cast<const From*>(a)[i]);
}
template <class From>
void convert_to_mask(void* y, const void* a, const void*, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<Mask*>(y)[i] = mask_of(static_cast<const From*>(a)[i] != From{});
}
template <class To>
void convert_from_mask(void* y, const void* a, const void*, const void*, int64_t n) {
  for (int64_t i = 0; i < n; ++i) static_cast<To*>(y)[i] = static_cast<const Mask*>(a)[i] ? To{1} : To{0};
}

LoopFn find_convert(DType to, DType from) {
  if (to == DType::b8 && from == DType::b8) return convert<Mask, Mask>;
  return dispatch_compute(from, [&](auto f) -> LoopFn {
    using From = decltype(f);
    if (to == DType::b8) return convert_to_mask<From>;
    return dispatch_compute(to, [&](auto t) -> LoopFn {
      using To = decltype(t);
      return from == DType::b8 ? &convert_from_mask<To> : &convert<To, From>;
    });
  });
}

template <class T>
LoopFn find_typed(ScalarOp op) {
  switch (op) {
    case ScalarOp::add: return binary<ScalarOp::add, T>;
    case ScalarOp::sub: return binary<ScalarOp::sub, T>;
    case ScalarOp::mul: return binary<ScalarOp::mul, T>;
    case ScalarOp::max: return binary<ScalarOp::max, T>;
    case ScalarOp::min: return binary<ScalarOp::min, T>;
    case ScalarOp::eq: return compare<ScalarOp::eq, T>;
    case ScalarOp::lt: return compare<ScalarOp::lt, T>;
    case ScalarOp::le: return compare<ScalarOp::le, T>;
    case ScalarOp::is_finite: return compare<ScalarOp::is_finite, T>;
    case ScalarOp::neg: return unary<ScalarOp::neg, T>;
    case ScalarOp::abs: return unary<ScalarOp::abs, T>;
    case ScalarOp::select: return select<T>;
    default: break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    switch (op) {
      case ScalarOp::div: return binary<ScalarOp::div, T>;
      case ScalarOp::pow: return binary<ScalarOp::pow, T>;
      case ScalarOp::exp: return unary<ScalarOp::exp, T>;
      case ScalarOp::expm1: return unary<ScalarOp::expm1, T>;
      case ScalarOp::log: return unary<ScalarOp::log, T>;
      case ScalarOp::log1p: return unary<ScalarOp::log1p, T>;
      case ScalarOp::sqrt: return unary<ScalarOp::sqrt, T>;
      case ScalarOp::rsqrt: return unary<ScalarOp::rsqrt, T>;
      case ScalarOp::tanh: return unary<ScalarOp::tanh, T>;
      case ScalarOp::sigmoid: return unary<ScalarOp::sigmoid, T>;
      case ScalarOp::erf: return unary<ScalarOp::erf, T>;
      case ScalarOp::sin: return unary<ScalarOp::sin, T>;
      case ScalarOp::cos: return unary<ScalarOp::cos, T>;
      case ScalarOp::floor: return unary<ScalarOp::floor, T>;
      case ScalarOp::round: return unary<ScalarOp::round, T>;
      default: break;
    }
  }
  return nullptr;
}

template <LoopReduce kind, class A, class T>
A combine(A acc, T x) {
  const A v = static_cast<A>(x);
  if constexpr (kind == LoopReduce::max)
    return v > acc || v != v ? v : acc;
  else if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(acc) + static_cast<uint64_t>(v));
  else
    return acc + v;
}

template <LoopReduce kind, class A, class T>
struct Accumulate {
  static void start(void* acc, int64_t n) {
    constexpr A kLowest = std::is_integral_v<A> ? std::numeric_limits<A>::min() : -std::numeric_limits<A>::infinity();
    std::fill_n(static_cast<A*>(acc), n, kind == LoopReduce::max ? kLowest : A{0});
  }
  static void rows(void* acc, const void* x, int64_t rows, int64_t len) {
    for (int64_t r = 0; r < rows; ++r) {
      A a = static_cast<A*>(acc)[r];
      for (int64_t i = 0; i < len; ++i) a = combine<kind>(a, static_cast<const T*>(x)[r * len + i]);
      static_cast<A*>(acc)[r] = a;
    }
  }
  static void columns(void* acc, const void* x, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t j = 0; j < n; ++j)
        static_cast<A*>(acc)[j] = combine<kind>(static_cast<A*>(acc)[j], static_cast<const T*>(x)[r * n + j]);
  }
};

template <class A, class T>
LoopAccumulate accumulate(LoopReduce kind, DType dtype) {
  if (kind == LoopReduce::max) {
    using M = Accumulate<LoopReduce::max, A, T>;
    return {dtype, &M::start, &M::rows, &M::columns};
  }
  using S = Accumulate<LoopReduce::sum, A, T>;
  return {dtype, &S::start, &S::rows, &S::columns};
}

}  // namespace

LoopFn find_scalar_loop_fn(ScalarOp op, DType dtype, DType from) {
  if (op == ScalarOp::convert) return find_convert(dtype, from);
  if (from == DType::b8) {
    switch (op) {
      case ScalarOp::select: return select<Mask>;
      case ScalarOp::eq: return compare<ScalarOp::eq, Mask>;
      default: return nullptr;
    }
  }
  return dispatch_compute(from, [&](auto t) { return find_typed<decltype(t)>(op); });
}

LoopAccumulate scalar_loop_accumulate(LoopReduce kind, DType t) {
  LATHE_CHECK(t != DType::f32 && t != DType::b8, "no scalar reduction of {}", to_string(t));
  if (t == DType::f64) return accumulate<double, double>(kind, DType::f64);
  if (t == DType::i32) return accumulate<int64_t, int32_t>(kind, DType::i64);
  if (t == DType::u8) return accumulate<int64_t, uint8_t>(kind, DType::i64);
  return accumulate<int64_t, int64_t>(kind, DType::i64);
}

}  // namespace lathe::cpu
