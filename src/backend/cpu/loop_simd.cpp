#include <cstring>

#include "backend/cpu/loop_ops.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/loop_simd.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

using F = hn::ScalableTag<float>;
using F1 = hn::CappedTag<float, 1>;

// One struct per instruction. Operands come as vectors of f32; masks are f32 vectors of all-zero or all-one lanes.
#define LATHE_UNARY(Name, expression)    \
  struct Name {                          \
    template <class D, class V>          \
    static HWY_INLINE V call(D d, V a) { \
      (void)d;                           \
      return expression;                 \
    }                                    \
  };
#define LATHE_BINARY(Name, expression)        \
  struct Name {                               \
    template <class D, class V>               \
    static HWY_INLINE V call(D d, V a, V b) { \
      (void)d;                                \
      return expression;                      \
    }                                         \
  };

LATHE_BINARY(Add, hn::Add(a, b))
LATHE_BINARY(Sub, hn::Sub(a, b))
LATHE_BINARY(Mul, hn::Mul(a, b))
LATHE_BINARY(Div, hn::Div(a, b))
LATHE_BINARY(Max, max_nan(d, a, b))
LATHE_BINARY(Min, min_nan(d, a, b))
LATHE_BINARY(Eq, hn::VecFromMask(d, hn::Eq(a, b)))
LATHE_BINARY(Lt, hn::VecFromMask(d, hn::Lt(a, b)))
LATHE_BINARY(Le, hn::VecFromMask(d, hn::Le(a, b)))
LATHE_BINARY(And, hn::And(a, b))
LATHE_BINARY(Or, hn::Or(a, b))
LATHE_UNARY(Not, hn::Not(a))
LATHE_UNARY(Neg, hn::Neg(a))
LATHE_UNARY(Abs, hn::Abs(a))
LATHE_UNARY(Exp, exp_f32(d, a))
LATHE_UNARY(Expm1, expm1_f32(d, a))
LATHE_UNARY(Log, log_f32(d, a))
LATHE_UNARY(Log1p, log1p_f32(d, a))
LATHE_UNARY(Sqrt, hn::Sqrt(a))
LATHE_UNARY(Rsqrt, hn::Div(hn::Set(d, 1.0f), hn::Sqrt(a)))
LATHE_UNARY(Tanh, tanh_f32(d, a))
LATHE_UNARY(Sigmoid, sigmoid_f32(d, a))
LATHE_UNARY(Erf, erf_f32(d, a))
LATHE_UNARY(Sin, sin_shifted_f32(d, a, 0))
LATHE_UNARY(Cos, sin_shifted_f32(d, a, 1))
LATHE_UNARY(Floor, hn::Floor(a))
LATHE_UNARY(Round, hn::Round(a))
LATHE_UNARY(IsFinite, hn::VecFromMask(d, hn::IsFinite(a)))
LATHE_UNARY(MaskToFloat, hn::And(a, hn::Set(d, 1.0f)))
LATHE_UNARY(FloatToMask, hn::Not(hn::VecFromMask(d, hn::Eq(a, hn::Zero(d)))))
LATHE_UNARY(IntToFloat, hn::ConvertTo(d, hn::BitCast(hn::RebindToSigned<D>(), a)))

// The bit patterns of base/dtype.h, lane by lane. Highway's own conversions differ in rounding where the instruction
// set has none.
template <class D>
using U = hn::RebindToUnsigned<D>;

template <class D, class V>
HWY_INLINE hn::Vec<U<D>> bf16_bits(D, V v) {  // in the upper half
  const U<D> du;
  const auto u = hn::BitCast(du, v);
  const auto even = hn::And(hn::ShiftRight<16>(u), hn::Set(du, 1u));
  const auto rounded = hn::Add(u, hn::Add(even, hn::Set(du, 0x7fffu)));
  const auto nan = hn::Gt(hn::And(u, hn::Set(du, 0x7fffffffu)), hn::Set(du, 0x7f800000u));
  return hn::And(hn::IfThenElse(nan, hn::Or(u, hn::Set(du, 0x400000u)), rounded), hn::Set(du, 0xffff0000u));
}

template <class D, class V>
HWY_INLINE hn::Vec<U<D>> f16_bits(D d, V v) {
  const U<D> du;
  const auto bits = hn::BitCast(du, v);
  const auto u = hn::And(bits, hn::Set(du, 0x7fffffffu)), sign = hn::Xor(bits, u);
  const auto magic = hn::Set(du, (127u - 15u + 23u - 10u + 1u) << 23);
  const auto small = hn::Sub(hn::BitCast(du, hn::Add(hn::BitCast(d, u), hn::BitCast(d, magic))), magic);
  const auto even = hn::And(hn::ShiftRight<13>(u), hn::Set(du, 1u));
  const auto normal = hn::ShiftRight<13>(hn::Add(u, hn::Add(even, hn::Set(du, ((15u - 127u) << 23) + 0xfffu))));
  const auto large = hn::IfThenElse(hn::Gt(u, hn::Set(du, 0x7f800000u)), hn::Set(du, 0x7e00u), hn::Set(du, 0x7c00u));
  const auto finite = hn::IfThenElse(hn::Lt(u, hn::Set(du, 113u << 23)), small, normal);
  const auto out = hn::IfThenElse(hn::Lt(u, hn::Set(du, (127u + 16u) << 23)), finite, large);
  return hn::Or(out, hn::ShiftRight<16>(sign));
}

template <class D, class VU>
HWY_INLINE hn::Vec<D> f16_value(D d, VU h) {
  const U<D> du;
  const auto exponent_mask = hn::Set(du, 0x7c00u << 13);
  const auto shifted = hn::ShiftLeft<13>(hn::And(h, hn::Set(du, 0x7fffu)));
  const auto exponent = hn::And(shifted, exponent_mask);
  const auto u = hn::Add(shifted, hn::Set(du, (127u - 15u) << 23));
  const auto large = hn::Add(u, hn::Set(du, (128u - 16u) << 23));
  const auto tiny = hn::BitCast(
      du, hn::Sub(hn::BitCast(d, hn::Add(u, hn::Set(du, 1u << 23))), hn::BitCast(d, hn::Set(du, 113u << 23))));
  const auto out =
      hn::IfThenElse(hn::Eq(exponent, exponent_mask), large, hn::IfThenElse(hn::Eq(exponent, hn::Zero(du)), tiny, u));
  return hn::BitCast(d, hn::Or(out, hn::ShiftLeft<16>(hn::And(h, hn::Set(du, 0x8000u)))));
}

LATHE_UNARY(RoundF16, f16_value(d, f16_bits(d, a)))
LATHE_UNARY(RoundBf16, hn::BitCast(d, bf16_bits(d, a)))

template <bool kBf16>
void load_16(void* y, const void* a, const void*, const void*, int64_t n) {
  const F d;
  const U<F> du;
  const hn::Rebind<uint16_t, F> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint16_t* x = static_cast<const uint16_t*>(a);
  float* out = static_cast<float*>(y);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto h = hn::PromoteTo(du, hn::LoadU(d16, x + i));
    if constexpr (kBf16)
      hn::StoreU(hn::BitCast(d, hn::ShiftLeft<16>(h)), d, out + i);
    else
      hn::StoreU(f16_value(d, h), d, out + i);
  }
  for (; i < n; ++i) out[i] = kBf16 ? float_of_bf16(x[i]) : float_of_f16(x[i]);
}

template <bool kBf16>
void store_16(void* y, const void* a, const void*, const void*, int64_t n) {
  const F d;
  const hn::RebindToSigned<F> di;
  const hn::Rebind<uint16_t, F> d16;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* x = static_cast<const float*>(a);
  uint16_t* out = static_cast<uint16_t*>(y);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    if constexpr (kBf16)
      hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, hn::ShiftRight<16>(bf16_bits(d, v)))), d16, out + i);
    else
      hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, f16_bits(d, v))), d16, out + i);
  }
  for (; i < n; ++i) out[i] = kBf16 ? bf16_of_float(x[i]) : f16_of_float(x[i]);
}

struct Select {
  template <class D, class V>
  static HWY_INLINE V call(D, V a, V b, V c) {
    return hn::IfThenElse(hn::MaskFromVec(a), b, c);
  }
};

template <class Op>
void unary(void* y, const void* a, const void*, const void*, int64_t n) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float* x = static_cast<const float*>(a);
  float* out = static_cast<float*>(y);
  int64_t i = 0;
#pragma GCC unroll 2
  for (; i + lanes <= n; i += lanes) hn::StoreU(Op::call(d, hn::LoadU(d, x + i)), d, out + i);
  if (i < n) store_part(Op::call(d, load_part(d, x + i, n - i, 1.0f)), d, out + i, n - i);
}

template <class Op>
void binary(void* y, const void* a, const void* b, const void*, int64_t n) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float *p = static_cast<const float*>(a), *q = static_cast<const float*>(b);
  float* out = static_cast<float*>(y);
  int64_t i = 0;
#pragma GCC unroll 4
  for (; i + lanes <= n; i += lanes) hn::StoreU(Op::call(d, hn::LoadU(d, p + i), hn::LoadU(d, q + i)), d, out + i);
  if (i < n)
    store_part(Op::call(d, load_part(d, p + i, n - i, 1.0f), load_part(d, q + i, n - i, 1.0f)), d, out + i, n - i);
}

void select(void* y, const void* a, const void* b, const void* c, int64_t n) {
  const F d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const float *p = static_cast<const float*>(a), *q = static_cast<const float*>(b), *r = static_cast<const float*>(c);
  float* out = static_cast<float*>(y);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(Select::call(d, hn::LoadU(d, p + i), hn::LoadU(d, q + i), hn::LoadU(d, r + i)), d, out + i);
  if (i < n) {
    const auto mask = load_part(d, p + i, n - i, 0.0f);
    store_part(Select::call(d, mask, load_part(d, q + i, n - i, 0.0f), load_part(d, r + i, n - i, 0.0f)), d, out + i,
               n - i);
  }
}

void load_mask(void* y, const void* a, const void*, const void*, int64_t n) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint8_t* x = static_cast<const uint8_t*>(a);
  int32_t* out = static_cast<int32_t*>(y);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::VecFromMask(d, hn::Ne(hn::PromoteTo(d, hn::LoadU(d8, x + i)), hn::Zero(d))), d, out + i);
  for (; i < n; ++i) out[i] = x[i] ? -1 : 0;
}

void store_mask(void* y, const void* a, const void*, const void*, int64_t n) {
  const hn::ScalableTag<int32_t> d;
  const hn::Rebind<uint8_t, decltype(d)> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int32_t* x = static_cast<const int32_t*>(a);
  uint8_t* out = static_cast<uint8_t*>(y);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(hn::DemoteTo(d8, hn::And(hn::LoadU(d, x + i), hn::Set(d, 1))), d8, out + i);
  for (; i < n; ++i) out[i] = x[i] ? 1 : 0;
}

void bytes_to_float(void* y, const void* a, const void*, const void*, int64_t n) {
  const F d;
  const hn::RebindToSigned<F> di;
  const hn::Rebind<uint8_t, F> d8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const uint8_t* x = static_cast<const uint8_t*>(a);
  float* out = static_cast<float*>(y);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(hn::ConvertTo(d, hn::PromoteTo(di, hn::LoadU(d8, x + i))), d, out + i);
  for (; i < n; ++i) out[i] = static_cast<float>(x[i]);
}

void fill(uint32_t* y, uint32_t value, int64_t n) {
  const hn::ScalableTag<uint32_t> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto v = hn::Set(d, value);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(v, d, y + i);
  for (; i < n; ++i) y[i] = value;
}

LoopFn find_convert(DType to, DType from) {
  if (to == DType::f32) {
    if (from == DType::u8) return bytes_to_float;
    if (from == DType::i32) return unary<IntToFloat>;
    if (from == DType::b8) return unary<MaskToFloat>;
  }
  if (to == DType::b8 && from == DType::f32) return unary<FloatToMask>;
  return nullptr;
}

LoopFn find(ScalarOp op, DType dtype, DType from) {
  if (op == ScalarOp::convert) return find_convert(dtype, from);
  if (from == DType::b8) {
    switch (op) {
      case ScalarOp::logical_and: return binary<And>;
      case ScalarOp::logical_or: return binary<Or>;
      case ScalarOp::logical_not: return unary<Not>;
      default: return nullptr;
    }
  }
  if (op == ScalarOp::select) return from == DType::f32 || from == DType::i32 ? select : nullptr;
  if (from != DType::f32) return nullptr;
  switch (op) {
    case ScalarOp::add: return binary<Add>;
    case ScalarOp::sub: return binary<Sub>;
    case ScalarOp::mul: return binary<Mul>;
    case ScalarOp::div: return binary<Div>;
    case ScalarOp::max: return binary<Max>;
    case ScalarOp::min: return binary<Min>;
    case ScalarOp::eq: return binary<Eq>;
    case ScalarOp::lt: return binary<Lt>;
    case ScalarOp::le: return binary<Le>;
    case ScalarOp::neg: return unary<Neg>;
    case ScalarOp::abs: return unary<Abs>;
    case ScalarOp::exp: return unary<Exp>;
    case ScalarOp::expm1: return unary<Expm1>;
    case ScalarOp::log: return unary<Log>;
    case ScalarOp::log1p: return unary<Log1p>;
    case ScalarOp::sqrt: return unary<Sqrt>;
    case ScalarOp::rsqrt: return unary<Rsqrt>;
    case ScalarOp::tanh: return unary<Tanh>;
    case ScalarOp::sigmoid: return unary<Sigmoid>;
    case ScalarOp::erf: return unary<Erf>;
    case ScalarOp::sin: return unary<Sin>;
    case ScalarOp::cos: return unary<Cos>;
    case ScalarOp::floor: return unary<Floor>;
    case ScalarOp::round: return unary<Round>;
    case ScalarOp::is_finite: return unary<IsFinite>;
    case ScalarOp::round_f16: return unary<RoundF16>;
    case ScalarOp::round_bf16: return unary<RoundBf16>;
    default: return nullptr;
  }
}

template <bool kMax, class D, class V>
HWY_INLINE V combine(D d, V acc, V x) {
  if constexpr (kMax)
    return max_nan(d, x, acc);
  else
    return hn::Add(acc, x);
}

template <bool kMax>
void start(void* acc, int64_t n) {
  float* y = static_cast<float*>(acc);
  for (int64_t i = 0; i < n; ++i) y[i] = kMax ? -INFINITY : 0.0f;
}

template <bool kMax>
void rows(void* acc, const void* x, int64_t count, int64_t len) {
  const F1 d;
  float* y = static_cast<float*>(acc);
  const float* p = static_cast<const float*>(x);
  for (int64_t r = 0; r < count; ++r, p += len) {
    const float v = kMax ? max_f32(p, len) : sum_f32(p, len);
    hn::StoreU(combine<kMax>(d, hn::LoadU(d, y + r), hn::Set(d, v)), d, y + r);
  }
}

// Accumulators of kVectors vectors of columns stay in registers while the rows go by.
template <bool kMax, int kVectors, class D>
HWY_INLINE void column_strip(D d, float* y, const float* x, int64_t count, int64_t n) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<D> acc[kVectors];
#pragma GCC unroll 8
  for (int k = 0; k < kVectors; ++k) acc[k] = hn::LoadU(d, y + k * lanes);
  for (int64_t r = 0; r < count; ++r, x += n)
#pragma GCC unroll 8
    for (int k = 0; k < kVectors; ++k) acc[k] = combine<kMax>(d, acc[k], hn::LoadU(d, x + k * lanes));
#pragma GCC unroll 8
  for (int k = 0; k < kVectors; ++k) hn::StoreU(acc[k], d, y + k * lanes);
}

template <bool kMax>
void columns(void* acc, const void* x, int64_t count, int64_t n) {
  const F d;
  const F1 d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float* y = static_cast<float*>(acc);
  const float* p = static_cast<const float*>(x);
  int64_t j = 0;
  for (; j + 4 * lanes <= n; j += 4 * lanes) column_strip<kMax, 4>(d, y + j, p + j, count, n);
  for (; j + lanes <= n; j += lanes) column_strip<kMax, 1>(d, y + j, p + j, count, n);
  for (; j < n; ++j) column_strip<kMax, 1>(d1, y + j, p + j, count, n);
}

const LoopSimd* table() {
  static constexpr LoopSimd kTable{&find,
                                   &load_mask,
                                   &store_mask,
                                   &load_16<false>,
                                   &load_16<true>,
                                   &store_16<false>,
                                   &store_16<true>,
                                   &fill,
                                   {DType::f32, &start<false>, &rows<false>, &columns<false>},
                                   {DType::f32, &start<true>, &rows<true>, &columns<true>}};
  return &kTable;
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {

HWY_EXPORT(table);

const LoopSimd& loop_simd() { return *HWY_DYNAMIC_DISPATCH(table)(); }

}  // namespace lathe::cpu
#endif
