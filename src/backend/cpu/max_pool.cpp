// max_pool, max_pool_grad, max_pool_pick: vectors run over channels. The position of a maximum is recomputed from x
// where it is needed; nothing is kept from the forward pass.
#include "ops/max_pool.h"

#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "base/checked.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/max_pool.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

// Calls f(d, c) for channels [begin, end): d is a vector tag, or a tag of one lane for the rest.
template <class T, class F>
HWY_INLINE void for_each_channel(int64_t begin, int64_t end, F&& f) {
  const hn::ScalableTag<T> d;
  const hn::CappedTag<T, 1> d1;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t c = begin;
  for (; c + lanes <= end; c += lanes) f(d, c);
  for (; c < end; ++c) f(d1, c);
}

// A NaN beats every number, the first of equals stays.
template <class D, class V>
HWY_INLINE hn::Mask<D> beats(D, V x, V best) {
  return hn::Or(hn::Gt(x, best), hn::AndNot(hn::IsNaN(best), hn::IsNaN(x)));
}

// Windows of K x K that lie wholly in the image have their taps at fixed distances: loops over them unroll.
template <int K>
HWY_INLINE bool is_whole(const PoolGeometry& g, WindowRange rows, WindowRange cols) {
  return g.kernel_h == K && g.kernel_w == K && rows.end - rows.begin == K && cols.end - cols.begin == K;
}

template <int K, class T>
HWY_INLINE void forward_whole(T* y, const T* x, int64_t row, int64_t channels) {
  for_each_channel<T>(0, channels, [&](auto d, int64_t c) HWY_ATTR {
    auto best = hn::LoadU(d, x + c);
#pragma GCC unroll 16
    for (int t = 1; t < K * K; ++t) best = max_nan(d, hn::LoadU(d, x + t / K * row + t % K * channels + c), best);
    hn::StoreU(best, d, y + c);
  });
}

// One row of windows of one image.
template <class T>
void forward(const PoolGeometry& g, T* y, const T* x, int64_t oh) {
  const WindowRange rows = g.rows().positions(oh);
  for (int64_t ow = 0; ow < g.out_w; ++ow) {
    const WindowRange cols = g.columns().positions(ow);
    T* out = y + (oh * g.out_w + ow) * g.channels;
    const T* first = x + (rows.begin * g.in_w + cols.begin) * g.channels;
    if (is_whole<2>(g, rows, cols)) {
      forward_whole<2>(out, first, g.in_w * g.channels, g.channels);
      continue;
    }
    if (is_whole<3>(g, rows, cols)) {
      forward_whole<3>(out, first, g.in_w * g.channels, g.channels);
      continue;
    }
    for_each_channel<T>(0, g.channels, [&](auto d, int64_t c) HWY_ATTR {
      auto best = hn::LoadU(d, first + c);
      for (int64_t ih = rows.begin; ih < rows.end; ++ih)
        for (int64_t iw = cols.begin; iw < cols.end; ++iw)
          best = max_nan(d, hn::LoadU(d, x + (ih * g.in_w + iw) * g.channels + c), best);
      hn::StoreU(best, d, out + c);
    });
  }
}

// What is read at the maximum: t for pick.
template <class T>
void pick(const PoolGeometry& g, T* y, const T* t, const T* x, int64_t oh) {
  const WindowRange rows = g.rows().positions(oh);
  for (int64_t ow = 0; ow < g.out_w; ++ow) {
    const WindowRange cols = g.columns().positions(ow);
    T* out = y + (oh * g.out_w + ow) * g.channels;
    for_each_channel<T>(0, g.channels, [&](auto d, int64_t c) HWY_ATTR {
      const int64_t first = (rows.begin * g.in_w + cols.begin) * g.channels + c;
      auto best = hn::LoadU(d, x + first), picked = hn::LoadU(d, t + first);
      for (int64_t ih = rows.begin; ih < rows.end; ++ih)
        for (int64_t iw = cols.begin; iw < cols.end; ++iw) {
          const int64_t at = (ih * g.in_w + iw) * g.channels + c;
          const auto v = hn::LoadU(d, x + at);
          const auto better = beats(d, v, best);
          best = hn::IfThenElse(better, v, best);
          picked = hn::IfThenElse(better, hn::LoadU(d, t + at), picked);
        }
      hn::StoreU(picked, d, out + c);
    });
  }
}

template <int K, bool kAdd, class T>
HWY_INLINE void backward_whole(T* dx, const T* dy, const T* x, int64_t row, int64_t channels, int64_t c0, int64_t c1) {
  for_each_channel<T>(c0, c1, [&](auto d, int64_t c) HWY_ATTR {
    auto best = hn::LoadU(d, x + c), where = hn::Zero(d);
#pragma GCC unroll 16
    for (int t = 1; t < K * K; ++t) {
      const auto v = hn::LoadU(d, x + t / K * row + t % K * channels + c);
      const auto better = beats(d, v, best);
      best = hn::IfThenElse(better, v, best);
      where = hn::IfThenElse(better, hn::Set(d, static_cast<T>(t)), where);
    }
    const auto flow = hn::LoadU(d, dy + c);
#pragma GCC unroll 16
    for (int t = 0; t < K * K; ++t) {
      T* out = dx + t / K * row + t % K * channels + c;
      const auto part = hn::IfThenElseZero(hn::Eq(where, hn::Set(d, static_cast<T>(t))), flow);
      hn::StoreU(kAdd ? hn::Add(hn::LoadU(d, out), part) : part, d, out);
    }
  });
}

// Channels [c0, c1) of one image: dx starts at zero, windows add in their order. Windows that tile the image write
// every element of dx once instead.
template <class T>
void backward(const PoolGeometry& g, T* dx, const T* dy, const T* x, int64_t c0, int64_t c1) {
  const bool fast = g.tiles() && g.kernel_h == 2 && g.kernel_w == 2;
  if (!fast)
    for (int64_t i = 0; i < g.in_h * g.in_w; ++i) std::fill(dx + i * g.channels + c0, dx + i * g.channels + c1, T{0});
  for (int64_t oh = 0; oh < g.out_h; ++oh) {
    const WindowRange rows = g.rows().positions(oh);
    for (int64_t ow = 0; ow < g.out_w; ++ow) {
      const WindowRange cols = g.columns().positions(ow);
      const T* in = dy + (oh * g.out_w + ow) * g.channels;
      const int64_t first = (rows.begin * g.in_w + cols.begin) * g.channels;
      if (fast) {
        backward_whole<2, false>(dx + first, in, x + first, g.in_w * g.channels, g.channels, c0, c1);
        continue;
      }
      if (is_whole<3>(g, rows, cols)) {
        backward_whole<3, true>(dx + first, in, x + first, g.in_w * g.channels, g.channels, c0, c1);
        continue;
      }
      for_each_channel<T>(c0, c1, [&](auto d, int64_t c) HWY_ATTR {
        auto best = hn::LoadU(d, x + first + c);
        auto where = hn::Zero(d), tap = hn::Zero(d);
        for (int64_t ih = rows.begin; ih < rows.end; ++ih)
          for (int64_t iw = cols.begin; iw < cols.end; ++iw) {
            const auto v = hn::LoadU(d, x + (ih * g.in_w + iw) * g.channels + c);
            const auto better = beats(d, v, best);
            best = hn::IfThenElse(better, v, best);
            where = hn::IfThenElse(better, tap, where);
            tap = hn::Add(tap, hn::Set(d, T{1}));
          }
        const auto flow = hn::LoadU(d, in + c);
        tap = hn::Zero(d);
        for (int64_t ih = rows.begin; ih < rows.end; ++ih)
          for (int64_t iw = cols.begin; iw < cols.end; ++iw) {
            T* out = dx + (ih * g.in_w + iw) * g.channels + c;
            hn::StoreU(hn::Add(hn::LoadU(d, out), hn::IfThenElseZero(hn::Eq(where, tap), flow)), d, out);
            tap = hn::Add(tap, hn::Set(d, T{1}));
          }
      });
    }
  }
}

void forward_f32(const PoolGeometry& g, float* y, const float* x, int64_t oh) { forward(g, y, x, oh); }
void forward_f64(const PoolGeometry& g, double* y, const double* x, int64_t oh) { forward(g, y, x, oh); }
void pick_f32(const PoolGeometry& g, float* y, const float* t, const float* x, int64_t oh) { pick(g, y, t, x, oh); }
void pick_f64(const PoolGeometry& g, double* y, const double* t, const double* x, int64_t oh) { pick(g, y, t, x, oh); }
void backward_f32(const PoolGeometry& g, float* dx, const float* dy, const float* x, int64_t c0, int64_t c1) {
  backward(g, dx, dy, x, c0, c1);
}
void backward_f64(const PoolGeometry& g, double* dx, const double* dy, const double* x, int64_t c0, int64_t c1) {
  backward(g, dx, dy, x, c0, c1);
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {
namespace {

HWY_EXPORT(forward_f32);
HWY_EXPORT(forward_f64);
HWY_EXPORT(pick_f32);
HWY_EXPORT(pick_f64);
HWY_EXPORT(backward_f32);
HWY_EXPORT(backward_f64);

constexpr int64_t kChannelStrip = 64;

void forward(const PoolGeometry& g, float* y, const float* x, int64_t oh) {
  HWY_DYNAMIC_DISPATCH(forward_f32)(g, y, x, oh);
}
void forward(const PoolGeometry& g, double* y, const double* x, int64_t oh) {
  HWY_DYNAMIC_DISPATCH(forward_f64)(g, y, x, oh);
}
void pick(const PoolGeometry& g, float* y, const float* t, const float* x, int64_t oh) {
  HWY_DYNAMIC_DISPATCH(pick_f32)(g, y, t, x, oh);
}
void pick(const PoolGeometry& g, double* y, const double* t, const double* x, int64_t oh) {
  HWY_DYNAMIC_DISPATCH(pick_f64)(g, y, t, x, oh);
}
void backward(const PoolGeometry& g, float* dx, const float* dy, const float* x, int64_t c0, int64_t c1) {
  HWY_DYNAMIC_DISPATCH(backward_f32)(g, dx, dy, x, c0, c1);
}
void backward(const PoolGeometry& g, double* dx, const double* dy, const double* x, int64_t c0, int64_t c1) {
  HWY_DYNAMIC_DISPATCH(backward_f64)(g, dx, dy, x, c0, c1);
}

template <class F>
auto dispatch_float(DType t, F&& f) {
  return t == DType::f64 ? f(double{}) : f(float{});
}

std::unique_ptr<Kernel> bind_forward(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const PoolGeometry g = pool_geometry("max_pool", site.in[0].shape, site.node.get<PoolParams>());
  const int64_t in = g.in_h * g.in_w * g.channels, out = g.out_h * g.out_w * g.channels;
  return dispatch_float(site.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    return host_kernel([=, &pool = host.pool, y = host.y<T>(), x = host.x<T>(0)] {
      pool.run(g.batch * g.out_h,
               [&](int64_t row) { forward(g, y + row / g.out_h * out, x + row / g.out_h * in, row % g.out_h); });
    });
  });
}

std::unique_ptr<Kernel> bind_pick(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const PoolGeometry g = pool_geometry("max_pool_pick", site.in[1].shape, site.node.get<PoolParams>());
  const int64_t in = g.in_h * g.in_w * g.channels, out = g.out_h * g.out_w * g.channels;
  return dispatch_float(site.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return host_kernel([=, &pool = host.pool, y = host.y<T>(), t = host.x<T>(0), x = host.x<T>(1)] {
      pool.run(g.batch * g.out_h, [&](int64_t row) {
        const int64_t n = row / g.out_h;
        pick(g, y + n * out, t + n * in, x + n * in, row % g.out_h);
      });
    });
  });
}

std::unique_ptr<Kernel> bind_backward(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const PoolGeometry g = pool_geometry("max_pool_grad", site.in[1].shape, site.node.get<PoolParams>());
  const int64_t in = g.in_h * g.in_w * g.channels, out = g.out_h * g.out_w * g.channels,
                strips = ceil_div(g.channels, kChannelStrip);
  return dispatch_float(site.in[0].dtype, [&](auto t) {
    using T = decltype(t);
    return host_kernel([=, &pool = host.pool, dx = host.y<T>(), dy = host.x<T>(0), x = host.x<T>(1)] {
      pool.run(g.batch * strips, [&](int64_t task) {
        const int64_t n = task / strips, c = task % strips * kChannelStrip;
        backward(g, dx + n * in, dy + n * out, x + n * in, c, std::min(c + kChannelStrip, g.channels));
      });
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> max_pool_rows() {
  return {{"max_pool", {"cpu_max_pool", accepts_wide, nullptr, bind_forward}, kWidened},
          {"max_pool_grad", {"cpu_max_pool_grad", accepts_wide, nullptr, bind_backward}, kWidened},
          {"max_pool_pick", {"cpu_max_pool_pick", accepts_wide, nullptr, bind_pick}, kWidened}};
}

}  // namespace lathe::cpu
#endif
