#include <cstring>

#include "backend/cpu/random_uniform.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/random_uniform_simd.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<uint32_t>;
using V = hn::Vec<D>;

// Upper 32 bits of the products of all lanes.
HWY_INLINE V mul_high(D d, V a, V m) {
  const hn::RepartitionToWide<D> d64;
  const auto even = hn::ShiftRight<32>(hn::MulEven(a, m));
  const auto odd = hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(d64, a))), m);
  return hn::OddEven(hn::BitCast(d, odd), hn::BitCast(d, even));
}

HWY_INLINE hn::Vec<hn::RebindToFloat<D>> to_unit(D d, V bits) {
  const hn::RebindToSigned<D> di;
  const hn::RebindToFloat<D> df;
  return hn::Mul(hn::ConvertTo(df, hn::BitCast(di, hn::ShiftRight<8>(bits))), hn::Set(df, 0x1p-24f));
  (void)d;
}

// All kUniformBlock numbers from `begin` on.
void generate(const UniformKey& k, int64_t begin, float* HWY_RESTRICT y) {
  const D d;
  const hn::RebindToFloat<D> df;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const V m0 = hn::Set(d, 0xD2511F53u), m1 = hn::Set(d, 0xCD9E8D57u);
  const uint64_t first = static_cast<uint64_t>(begin) >> 2;
  // 256 counters from a multiple of 256: the upper half of the counter does not change on the way.
  const V high = hn::Set(d, static_cast<uint32_t>(first >> 32));
  for (int64_t i = 0; i < kUniformBlock / 4; i += lanes) {
    V c0 = hn::Iota(d, static_cast<uint32_t>(first) + static_cast<uint32_t>(i));
    V c1 = high, c2 = hn::Set(d, k.a), c3 = hn::Set(d, k.b);
    uint32_t k0 = k.key[0], k1 = k.key[1];
    for (int round = 0; round < 10; ++round) {
      const V h0 = mul_high(d, c0, m0), l0 = hn::Mul(c0, m0), h1 = mul_high(d, c2, m1), l1 = hn::Mul(c2, m1);
      c0 = hn::Xor(hn::Xor(h1, c1), hn::Set(d, k0));
      c1 = l1;
      c2 = hn::Xor(hn::Xor(h0, c3), hn::Set(d, k1));
      c3 = l0;
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    hn::StoreInterleaved4(to_unit(d, c0), to_unit(d, c1), to_unit(d, c2), to_unit(d, c3), df, y + 4 * i);
  }
}

void fill(const UniformKey& k, float* y, int64_t begin, int64_t n) {
  if (n == kUniformBlock) {
    generate(k, begin, y);
    return;
  }
  HWY_ALIGN float u[kUniformBlock];
  generate(k, begin, u);
  std::memcpy(y, u, static_cast<size_t>(n) * sizeof(float));
}

void drop(const UniformKey& k, float* y, const float* x, int64_t begin, int64_t n, float rate, float scale) {
  const hn::ScalableTag<float> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float u[kUniformBlock];
  generate(k, begin, u);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto keep = hn::Le(hn::Set(d, rate), hn::Load(d, u + i));
    hn::StoreU(hn::IfThenElseZero(keep, hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale))), d, y + i);
  }
  for (; i < n; ++i) y[i] = rate <= u[i] ? x[i] * scale : 0.0f;
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {

HWY_EXPORT(fill);
HWY_EXPORT(drop);

void fill_uniform(const UniformKey& k, float* y, int64_t begin, int64_t n) {
  HWY_DYNAMIC_DISPATCH(fill)(k, y, begin, n);
}
void drop_uniform(const UniformKey& k, float* y, const float* x, int64_t begin, int64_t n, float rate, float scale) {
  HWY_DYNAMIC_DISPATCH(drop)(k, y, x, begin, n, rate, scale);
}

}  // namespace lathe::cpu
#endif
