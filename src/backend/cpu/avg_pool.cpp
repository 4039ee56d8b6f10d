// avg_pool and avg_pool_grad: vectors run over channels; every output pixel gathers what belongs to it.
#include "ops/avg_pool.h"

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/avg_pool.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

template <class D, class T>
HWY_INLINE void sum_channels(D d, T* y, const T* x, int64_t width, int64_t channels, WindowRange rows, WindowRange cols,
                             T weight) {
  auto sum = hn::Zero(d);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    for (int64_t j = cols.begin; j < cols.end; ++j) sum = hn::Add(sum, hn::LoadU(d, x + (i * width + j) * channels));
  hn::StoreU(hn::Mul(sum, hn::Set(d, weight)), d, y);
}

// y = weight * sum of the pixels rows x cols of an image x [.., width, channels].
template <class T>
void sum_box(T* y, const T* x, int64_t width, int64_t channels, WindowRange rows, WindowRange cols, T weight) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = 0;
  for (; c + lanes <= channels; c += lanes) sum_channels(d, y + c, x + c, width, channels, rows, cols, weight);
  for (; c < channels; ++c) sum_channels(d1, y + c, x + c, width, channels, rows, cols, weight);
}

void sum_box_f32(float* y, const float* x, int64_t width, int64_t channels, WindowRange rows, WindowRange cols,
                 float weight) {
  sum_box(y, x, width, channels, rows, cols, weight);
}
void sum_box_f64(double* y, const double* x, int64_t width, int64_t channels, WindowRange rows, WindowRange cols,
                 double weight) {
  sum_box(y, x, width, channels, rows, cols, weight);
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {
namespace {

HWY_EXPORT(sum_box_f32);
HWY_EXPORT(sum_box_f64);

void sum_box(float* y, const float* x, int64_t width, int64_t channels, WindowRange rows, WindowRange cols,
             float weight) {
  HWY_DYNAMIC_DISPATCH(sum_box_f32)(y, x, width, channels, rows, cols, weight);
}
void sum_box(double* y, const double* x, int64_t width, int64_t channels, WindowRange rows, WindowRange cols,
             double weight) {
  HWY_DYNAMIC_DISPATCH(sum_box_f64)(y, x, width, channels, rows, cols, weight);
}

template <bool kGrad>
std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const auto& p = site.node.get<PoolParams>();
  const PoolGeometry g = pool_geometry("avg_pool", kGrad ? site.out[0].shape : site.in[0].shape, p);
  const double weight = 1.0 / static_cast<double>(g.kernel_h * g.kernel_w);
  // The kernel gathers from an image [in_h, in_w] to an image [out_h, out_w], as seen from here.
  const int64_t out_h = kGrad ? g.in_h : g.out_h, out_w = kGrad ? g.in_w : g.out_w;
  const int64_t in_h = kGrad ? g.out_h : g.in_h, in_w = kGrad ? g.out_w : g.in_w;
  const auto range_h = [=](int64_t o) { return kGrad ? g.rows().windows_over(o) : g.rows().positions(o); };
  const auto range_w = [=](int64_t o) { return kGrad ? g.columns().windows_over(o) : g.columns().positions(o); };
  const auto make = [&](auto t) {
    using T = decltype(t);
    return host_kernel([=, &pool = host.pool, y = host.y<T>(), x = host.x<T>(0)] {
      pool.run(g.batch * out_h, [&](int64_t row) {
        const T* image = x + row / out_h * in_h * in_w * g.channels;
        const WindowRange rows = range_h(row % out_h);
        for (int64_t j = 0; j < out_w; ++j)
          sum_box(y + (row * out_w + j) * g.channels, image, in_w, g.channels, rows, range_w(j),
                  static_cast<T>(weight));
      });
    });
  };
  return site.in[0].dtype == DType::f64 ? make(double{}) : make(float{});
}

}  // namespace

std::vector<KernelTable::Row> avg_pool_rows() {
  return {{"avg_pool", {"cpu_avg_pool", accepts_wide, nullptr, bind<false>}, kWidened},
          {"avg_pool_grad", {"cpu_avg_pool_grad", accepts_wide, nullptr, bind<true>}, kWidened}};
}

}  // namespace lathe::cpu
#endif
