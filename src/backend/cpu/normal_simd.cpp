#include <cstring>
#include <numbers>

#include "backend/cpu/normal.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/normal_simd.cpp"
// clang-format off
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

void normal(const UniformKey& k, double scale, float* y, int64_t begin, int64_t n) {
  const hn::ScalableTag<double> d;
  const hn::Rebind<float, decltype(d)> df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  HWY_ALIGN float u[kUniformBlock];
  HWY_ALIGN float out[kNormalBlock];
  fill_uniform(k, u, 2 * begin, kUniformBlock);
  for (int64_t i = 0; i < n; i += lanes) {
    hn::Vec<decltype(df)> radial, angular;
    hn::LoadInterleaved2(df, u + 2 * i, radial, angular);
    const auto rest = hn::Sub(hn::Set(d, 1.0), hn::PromoteTo(d, radial));  // in (0, 1]
    const auto radius = hn::Sqrt(hn::Mul(hn::Set(d, -2.0), hn::Log(d, rest)));
    const auto angle = hn::Mul(hn::Set(d, 2.0 * std::numbers::pi), hn::PromoteTo(d, angular));
    const auto v = hn::Mul(hn::Set(d, scale), hn::Mul(radius, hn::Cos(d, angle)));
    hn::Store(hn::DemoteTo(df, v), df, out + i);
  }
  std::memcpy(y, out, static_cast<size_t>(n) * sizeof(float));
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {

HWY_EXPORT(normal);

void fill_normal(const UniformKey& k, double scale, float* y, int64_t begin, int64_t n) {
  HWY_DYNAMIC_DISPATCH(normal)(k, scale, y, begin, n);
}

}  // namespace lathe::cpu
#endif
