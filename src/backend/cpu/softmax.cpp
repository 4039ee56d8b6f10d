// softmax, log_softmax, cross_entropy and their gradients: row by row, everything after the first read from cache.
#include "ops/softmax.h"

#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "ops/cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/softmax.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

// Sum of exp(x - top); lanes beyond the end hold -infinity, whose exp is 0.
HWY_INLINE double exp_sum(const float* x, int64_t n, float top) {
  const RowTag d;
  return sum_row(n, [&](auto at) HWY_ATTR { return exp_f32(d, hn::Sub(at.load(x, -INFINITY), hn::Set(d, top))); });
}

void softmax_row(float* y, const float* x, int64_t n) {
  const RowTag d;
  const float top = max_f32(x, n);
  const double sum = sum_row(n, [&](auto at) HWY_ATTR {
    const RowVec e = exp_f32(d, hn::Sub(at.load(x, -INFINITY), hn::Set(d, top)));
    at.store(e, y);
    return e;
  });
  const float scale = static_cast<float>(1 / sum);
  map_row(n, [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(y), hn::Set(d, scale)), y); });
}

void log_softmax_row(float* y, const float* x, int64_t n) {
  const RowTag d;
  const float top = max_f32(x, n), log_sum = static_cast<float>(std::log(exp_sum(x, n, top)));
  map_row(n,
          [&](auto at) HWY_ATTR { at.store(hn::Sub(hn::Sub(at.load(x), hn::Set(d, top)), hn::Set(d, log_sum)), y); });
}

void softmax_grad_row(float* dx, const float* dy, const float* y, int64_t n) {
  const RowTag d;
  const float dot = static_cast<float>(sum_row(n, [&](auto at) HWY_ATTR { return hn::Mul(at.load(dy), at.load(y)); }));
  map_row(n, [&](auto at) HWY_ATTR { at.store(hn::Mul(at.load(y), hn::Sub(at.load(dy), hn::Set(d, dot))), dx); });
}

void log_softmax_grad_row(float* dx, const float* dy, const float* y, int64_t n) {
  const RowTag d;
  const float sum = static_cast<float>(sum_row(n, [&](auto at) HWY_ATTR { return at.load(dy); }));
  map_row(n,
          [&](auto at) HWY_ATTR { at.store(hn::NegMulAdd(exp_f32(d, at.load(y)), hn::Set(d, sum), at.load(dy)), dx); });
}

float cross_entropy_row(const float* x, int64_t n, int64_t label, double smoothing) {
  const float top = max_f32(x, n);
  double loss = static_cast<double>(top) + std::log(exp_sum(x, n, top));
  if (label >= 0 && label < n) loss -= (1 - smoothing) * static_cast<double>(x[label]);
  if (smoothing > 0)
    loss -= smoothing * sum_row(n, [&](auto at) HWY_ATTR { return at.load(x); }) / static_cast<double>(n);
  return static_cast<float>(loss);
}

void cross_entropy_grad_row(float* dx, float dloss, const float* x, int64_t n, int64_t label, double smoothing) {
  const RowTag d;
  const float top = max_f32(x, n);
  const double sum = sum_row(n, [&](auto at) HWY_ATTR {
    const RowVec e = exp_f32(d, hn::Sub(at.load(x, -INFINITY), hn::Set(d, top)));
    at.store(e, dx);
    return e;
  });
  // The label's value needs the exact difference p - target before it is scaled.
  const bool valid = label >= 0 && label < n;
  const double share = smoothing / static_cast<double>(n);
  const double at_label = valid ? static_cast<double>(dx[label]) / sum - (1 - smoothing) - share : 0;
  const float scale = static_cast<float>(1 / sum), rest = static_cast<float>(share);
  map_row(n, [&](auto at) HWY_ATTR {
    const RowVec p = hn::Mul(at.load(dx), hn::Set(d, scale));
    at.store(hn::Mul(hn::Sub(p, hn::Set(d, rest)), hn::Set(d, dloss)), dx);
  });
  if (valid) dx[label] = static_cast<float>(at_label) * dloss;
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {
namespace {

HWY_EXPORT(softmax_row);
HWY_EXPORT(log_softmax_row);
HWY_EXPORT(softmax_grad_row);
HWY_EXPORT(log_softmax_grad_row);
HWY_EXPORT(cross_entropy_row);
HWY_EXPORT(cross_entropy_grad_row);

constexpr int64_t kTaskElements = 16384;

// Calls f(row) for all rows, some per task.
template <class F>
void for_each_row(ThreadPool& pool, int64_t rows, int64_t n, F&& f) {
  pool.run_blocks(rows, std::max<int64_t>(1, kTaskElements / std::max<int64_t>(1, n)), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) f(r);
  });
}

std::string accepts_f32(const Site& site) {
  return site.out[0].dtype == DType::f32 ? "" : fmt::format("only f32, got {}", to_string(site.out[0].dtype));
}

template <bool kLog>
std::unique_ptr<Kernel> bind_forward(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t n = site.in[0].shape.dim(-1), rows = site.in[0].numel() / n;
  return host_kernel([=, &pool = host.pool, y = host.y<float>(), x = host.x<float>(0)] {
    const auto f = kLog ? &HWY_DYNAMIC_DISPATCH(log_softmax_row) : &HWY_DYNAMIC_DISPATCH(softmax_row);
    for_each_row(pool, rows, n, [&](int64_t r) { f(y + r * n, x + r * n, n); });
  });
}

template <bool kLog>
std::unique_ptr<Kernel> bind_grad(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t n = site.in[0].shape.dim(-1), rows = site.in[0].numel() / n;
  return host_kernel([=, &pool = host.pool, dx = host.y<float>(), dy = host.x<float>(0), y = host.x<float>(1)] {
    const auto f = kLog ? &HWY_DYNAMIC_DISPATCH(log_softmax_grad_row) : &HWY_DYNAMIC_DISPATCH(softmax_grad_row);
    for_each_row(pool, rows, n, [&](int64_t r) { f(dx + r * n, dy + r * n, y + r * n, n); });
  });
}

std::unique_ptr<Kernel> bind_cross_entropy(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t rows = site.in[0].shape[0], n = site.in[0].shape[1];
  const double smoothing = site.node.get<CrossEntropyParams>().smoothing;
  return host_kernel([=, &pool = host.pool, y = host.y<float>(), x = host.x<float>(0), labels = host.x<int32_t>(1)] {
    const auto f = &HWY_DYNAMIC_DISPATCH(cross_entropy_row);
    for_each_row(pool, rows, n, [&](int64_t r) { y[r] = f(x + r * n, n, labels[r], smoothing); });
  });
}

std::unique_ptr<Kernel> bind_cross_entropy_grad(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t rows = site.in[1].shape[0], n = site.in[1].shape[1];
  const double smoothing = site.node.get<CrossEntropyParams>().smoothing;
  return host_kernel([=, &pool = host.pool, dx = host.y<float>(), dloss = host.x<float>(0), x = host.x<float>(1),
                      labels = host.x<int32_t>(2)] {
    const auto f = &HWY_DYNAMIC_DISPATCH(cross_entropy_grad_row);
    for_each_row(pool, rows, n, [&](int64_t r) { f(dx + r * n, dloss[r], x + r * n, n, labels[r], smoothing); });
  });
}

}  // namespace

std::vector<KernelTable::Row> softmax_rows() {
  return {{"softmax", {"cpu_softmax", accepts_f32, nullptr, bind_forward<false>}, kWidened},
          {"log_softmax", {"cpu_log_softmax", accepts_f32, nullptr, bind_forward<true>}, kWidened},
          {"softmax_grad", {"cpu_softmax_grad", accepts_f32, nullptr, bind_grad<false>}, kWidened},
          {"log_softmax_grad", {"cpu_log_softmax_grad", accepts_f32, nullptr, bind_grad<true>}, kWidened},
          {"cross_entropy", {"cpu_cross_entropy", accepts_f32, nullptr, bind_cross_entropy}, kWidened},
          {"cross_entropy_grad", {"cpu_cross_entropy_grad", accepts_f32, nullptr, bind_cross_entropy_grad}, kWidened}};
}

}  // namespace lathe::cpu
#endif
