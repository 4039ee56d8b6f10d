// Vector mathematics in f32 for the cpu kernels, compiled once per instruction set: include inside a foreach_target
// source, after <hwy/highway.h>. Errors stay within 3 units in the last place over the normal range; NaN propagates;
// denormal results are zero (worker threads flush them).
#if defined(LATHE_SIMD_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LATHE_SIMD_MATH_INL_H_
#undef LATHE_SIMD_MATH_INL_H_
#else
#define LATHE_SIMD_MATH_INL_H_
#endif

#include <hwy/highway.h>

#include <cmath>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The first `count` values at p, fewer than a vector; other lanes are `fill`. Touches no memory beyond them.
template <class D>
HWY_INLINE hn::Vec<D> load_part(D d, const hn::TFromD<D>* p, int64_t count, hn::TFromD<D> fill) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  const auto mask = hn::FirstN(d, static_cast<size_t>(count));
  return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, p), hn::Set(d, fill));
#else
  HWY_ALIGN hn::TFromD<D> buffer[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
  hn::Store(hn::Set(d, fill), d, buffer);
  for (int64_t i = 0; i < count; ++i) buffer[i] = p[i];
  return hn::Load(d, buffer);
#endif
}
template <class D>
HWY_INLINE void store_part(hn::Vec<D> v, D d, hn::TFromD<D>* p, int64_t count) {
#if HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_AVX3
  hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(count)), d, p);
#else
  HWY_ALIGN hn::TFromD<D> buffer[HWY_MAX_BYTES / sizeof(hn::TFromD<D>)];
  hn::Store(v, d, buffer);
  for (int64_t i = 0; i < count; ++i) p[i] = buffer[i];
#endif
}

// a > b or a is NaN ? a : b, the rule of ScalarOp::max: NaN wins on either side.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V max_nan(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Gt(a, b), hn::IsNaN(a)), a, b);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE V min_nan(D, V a, V b) {
  return hn::IfThenElse(hn::Or(hn::Lt(a, b), hn::IsNaN(a)), a, b);
}

// 2^n for whole n in [-126, 127].
template <class D, class VI>
HWY_INLINE hn::Vec<D> power_of_two(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// (exp(r) - 1 - r) / r^2 for |r| <= ln 2 / 2 (Cephes expf).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_polynomial(D d, V r) {
  V p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  return p;
}

// (log(1 + f) - f + f^2 / 2) / f^3 for 1 + f in [sqrt(1/2), sqrt(2)) (Cephes logf).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_polynomial(D d, V f) {
  V p = hn::Set(d, 7.0376836292e-2f);
  p = hn::MulAdd(p, f, hn::Set(d, -1.1514610310e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.1676998740e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.2420140846e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.4249322787e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -1.6668057665e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 2.0000714765e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, -2.4999993993e-1f));
  p = hn::MulAdd(p, f, hn::Set(d, 3.3333331174e-1f));
  return p;
}

// exp: x = n ln 2 + r, polynomial on r; 2^n in two factors, so that it overflows to infinity by itself.
// Results below the smallest normal number are zero, with no denormal on the way: those cost 100 cycles each where
// they are not flushed.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_f32(D d, V x) {
  const V least = hn::Set(d, -87.33654f);
  const V clamped = hn::Min(hn::Max(x, least), hn::Set(d, 89.0f));
  const auto n = hn::NearestInt(hn::Mul(clamped, hn::Set(d, 1.44269504088896341f)));
  const V nf = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(nf, hn::Set(d, 0.693359375f), clamped);
  r = hn::NegMulAdd(nf, hn::Set(d, -2.12194440e-4f), r);
  V p = exp_polynomial(d, r);
  p = hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
  const auto half = hn::ShiftRight<1>(n);
  const V y = hn::Mul(hn::Mul(p, power_of_two(d, half)), power_of_two(d, hn::Sub(n, half)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::IfThenZeroElse(hn::Lt(x, least), y));
}

// log: x = m 2^e with m in [sqrt(1/2), sqrt(2)), polynomial on m - 1. Denormals count as zero.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V log_f32(D d, V x) {
  const hn::RebindToSigned<D> di;
  const V one = hn::Set(d, 1.0f);
  const auto bits = hn::BitCast(di, x);
  // Exponent relative to sqrt(1/2): its mantissa bits are subtracted before the shift.
  const auto offset = hn::Sub(bits, hn::Set(di, 0x3f3504f3));
  const V e = hn::ConvertTo(d, hn::ShiftRight<23>(offset));
  const auto mantissa = hn::Add(hn::And(offset, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f3504f3));
  const V f = hn::Sub(hn::BitCast(d, mantissa), one);
  const V z = hn::Mul(f, f);
  const V p = log_polynomial(d, f);
  V y = hn::Mul(hn::Mul(p, f), z);
  y = hn::MulAdd(e, hn::Set(d, -2.12194440e-4f), y);
  y = hn::NegMulAdd(z, hn::Set(d, 0.5f), y);
  y = hn::MulAdd(e, hn::Set(d, 0.693359375f), hn::Add(f, y));
  const V infinity = hn::Set(d, INFINITY);
  y = hn::IfThenElse(hn::Lt(x, hn::Set(d, 1.17549435e-38f)), hn::Neg(infinity), y);
  y = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, NAN), y);
  y = hn::IfThenElse(hn::Eq(x, infinity), infinity, y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V expm1_f32(D d, V x) {
  const V near = hn::MulAdd(exp_polynomial(d, x), hn::Mul(x, x), x);
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0.34f)), near, hn::Sub(exp_f32(d, x), hn::Set(d, 1.0f)));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V log1p_f32(D d, V x) {
  const V z = hn::Mul(x, x);
  const V near = hn::Add(x, hn::NegMulAdd(z, hn::Set(d, 0.5f), hn::Mul(hn::Mul(log_polynomial(d, x), x), z)));
  return hn::IfThenElse(hn::Lt(hn::Abs(x), hn::Set(d, 0.29f)), near, log_f32(d, hn::Add(x, hn::Set(d, 1.0f))));
}

template <class D, class V = hn::Vec<D>>
HWY_INLINE V sigmoid_f32(D d, V x) {
  const V one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_f32(d, hn::Neg(x))));
}

// tanh: polynomial of Cephes tanhf near zero, 1 - 2 / (exp(2|x|) + 1) elsewhere.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V tanh_f32(D d, V x) {
  const V one = hn::Set(d, 1.0f), a = hn::Abs(x), z = hn::Mul(x, x);
  V p = hn::Set(d, -5.70498872745e-3f);
  p = hn::MulAdd(p, z, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1f));
  const V near = hn::MulAdd(hn::Mul(p, z), x, x);
  const V e = exp_f32(d, hn::Add(a, a));
  const V far = hn::CopySign(hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one))), x);
  return hn::IfThenElse(hn::Lt(a, hn::Set(d, 0.625f)), near, far);
}

// erf: two minimax polynomials (N. Juffa), the outer one as 1 - exp(q(|x|)).
template <class D, class V = hn::Vec<D>>
HWY_INLINE V erf_f32(D d, V x) {
  const V one = hn::Set(d, 1.0f), t = hn::Abs(x), s = hn::Mul(x, x);
  V r = hn::MulAdd(hn::Set(d, -1.72853470e-5f), t, hn::Set(d, 3.83197126e-4f));
  const V u = hn::MulAdd(hn::Set(d, -3.88396438e-3f), t, hn::Set(d, 2.42546219e-2f));
  r = hn::MulAdd(r, s, u);
  r = hn::MulAdd(r, t, hn::Set(d, -1.06777877e-1f));
  r = hn::MulAdd(r, t, hn::Set(d, -6.34846687e-1f));
  r = hn::MulAdd(r, t, hn::Set(d, -1.28717512e-1f));
  r = hn::MulAdd(r, t, hn::Neg(t));
  const V outer = hn::CopySign(hn::Sub(one, exp_f32(d, r)), x);
  V p = hn::Set(d, -5.96761703e-4f);
  p = hn::MulAdd(p, s, hn::Set(d, 4.99119423e-3f));
  p = hn::MulAdd(p, s, hn::Set(d, -2.67681349e-2f));
  p = hn::MulAdd(p, s, hn::Set(d, 1.12819925e-1f));
  p = hn::MulAdd(p, s, hn::Set(d, -3.76125336e-1f));
  p = hn::MulAdd(p, s, hn::Set(d, 1.28379166e-1f));
  const V inner = hn::MulAdd(p, x, x);
  // Beyond 4 the polynomial of the exponent is not meant to be used: erf is 1 in f32.
  V y = hn::IfThenElse(hn::Gt(t, hn::Set(d, 0.927734375f)), outer, inner);
  y = hn::IfThenElse(hn::Gt(t, hn::Set(d, 4.0f)), hn::CopySign(one, x), y);
  return hn::IfThenElse(hn::IsNaN(x), x, y);
}

// sin(x + quarter pi/2): reduction by pi/2 in three parts, good to |x| = 8192; libm beyond.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V sin_shifted_f32(D d, V x, int32_t quarter) {
  const hn::RebindToSigned<D> di;
  const auto outside = hn::Not(hn::Le(hn::Abs(x), hn::Set(d, 8192.0f)));
  const V safe = hn::IfThenElse(outside, hn::Zero(d), x);
  const auto n = hn::NearestInt(hn::Mul(safe, hn::Set(d, 0.636619772367581343f)));
  const V nf = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(nf, hn::Set(d, 1.5703125f), safe);
  r = hn::NegMulAdd(nf, hn::Set(d, 4.837512969970703125e-4f), r);
  r = hn::NegMulAdd(nf, hn::Set(d, 7.54978995489188216e-8f), r);
  const V z = hn::Mul(r, r);
  V s = hn::Set(d, -1.9515295891e-4f);
  s = hn::MulAdd(s, z, hn::Set(d, 8.3321608736e-3f));
  s = hn::MulAdd(s, z, hn::Set(d, -1.6666654611e-1f));
  s = hn::MulAdd(hn::Mul(s, z), r, r);
  V c = hn::Set(d, 2.443315711809948e-5f);
  c = hn::MulAdd(c, z, hn::Set(d, -1.388731625493765e-3f));
  c = hn::MulAdd(c, z, hn::Set(d, 4.166664568298827e-2f));
  c = hn::Add(hn::NegMulAdd(hn::Set(d, 0.5f), z, hn::Mul(hn::Mul(c, z), z)), hn::Set(d, 1.0f));
  const auto q = hn::Add(n, hn::Set(di, quarter));
  const auto odd = hn::RebindMask(d, hn::Eq(hn::And(q, hn::Set(di, 1)), hn::Set(di, 1)));
  const V sign = hn::BitCast(d, hn::ShiftLeft<30>(hn::And(q, hn::Set(di, 2))));
  V y = hn::Xor(hn::IfThenElse(odd, c, s), sign);
  if (HWY_UNLIKELY(!hn::AllFalse(d, outside))) {
    HWY_ALIGN float in[HWY_MAX_BYTES / 4], out[HWY_MAX_BYTES / 4];
    hn::Store(x, d, in);
    hn::Store(y, d, out);
    for (size_t i = 0; i < hn::Lanes(d); ++i)
      if (!(std::fabs(in[i]) <= 8192.0f)) out[i] = quarter ? std::cos(in[i]) : std::sin(in[i]);
    y = hn::Load(d, out);
  }
  return y;
}

// Sum of n values, in an order that depends on n alone.
HWY_INLINE float sum_f32(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    s0 = hn::Add(s0, hn::LoadU(d, x + i));
    s1 = hn::Add(s1, hn::LoadU(d, x + i + lanes));
    s2 = hn::Add(s2, hn::LoadU(d, x + i + 2 * lanes));
    s3 = hn::Add(s3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) s0 = hn::Add(s0, hn::LoadU(d, x + i));
  if (i < n) s1 = hn::Add(s1, load_part(d, x + i, n - i, 0.0f));
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

// Maximum of n values; NaN if any is; -infinity for none. Max drops NaN on one side, so NaN is watched apart.
HWY_INLINE float max_f32(const float* x, int64_t n) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto m0 = hn::Set(d, -INFINITY), m1 = m0;
  auto nan = hn::IsNaN(m0);
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto v0 = hn::LoadU(d, x + i), v1 = hn::LoadU(d, x + i + lanes);
    nan = hn::Or(nan, hn::Or(hn::IsNaN(v0), hn::IsNaN(v1)));
    m0 = hn::Max(m0, v0);
    m1 = hn::Max(m1, v1);
  }
  for (; i < n; i += lanes) {
    const auto v = i + lanes <= n ? hn::LoadU(d, x + i) : load_part(d, x + i, n - i, -INFINITY);
    nan = hn::Or(nan, hn::IsNaN(v));
    m0 = hn::Max(m0, v);
  }
  if (HWY_UNLIKELY(!hn::AllFalse(d, nan))) return NAN;
  return hn::GetLane(hn::MaxOfLanes(d, hn::Max(m0, m1)));
}

}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
