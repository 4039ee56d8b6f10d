// layer_norm and layer_norm_grad: a row is read from memory once; its later passes find it in cache.
#include "ops/layer_norm.h"

#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "backend/cpu/norm_columns.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/layer_norm.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

void forward_row(float* y, float* mean_out, float* rstd_out, const float* x, const float* gamma, const float* beta,
                 int64_t n, double eps) {
  const RowTag d;
  const double mean = sum_row(n, [&](auto at) HWY_ATTR { return at.load(x); }) / static_cast<double>(n);
  const float m = static_cast<float>(mean);
  const double squares = sum_row(n, [&](auto at) HWY_ATTR {
    const RowVec centered = hn::Sub(at.load(x, m), hn::Set(d, m));
    return hn::Mul(centered, centered);
  });
  // The mean was rounded to f32: its error is taken out of the variance again.
  const double off = mean - static_cast<double>(m), variance = squares / static_cast<double>(n) - off * off;
  const float r = static_cast<float>(1 / std::sqrt(std::max(variance, 0.0) + eps));
  map_row(n, [&](auto at) HWY_ATTR {
    const RowVec normal = hn::Mul(hn::Sub(at.load(x), hn::Set(d, m)), hn::Set(d, r));
    at.store(hn::MulAdd(normal, at.load(gamma), at.load(beta)), y);
  });
  *mean_out = m;
  *rstd_out = std::isnan(variance) ? static_cast<float>(variance) : r;
}

// dx of one row; adds the row's part to dgamma and dbeta.
void backward_row(float* dx, float* dgamma, float* dbeta, const float* dy, const float* x, const float* gamma,
                  float mean, float rstd, int64_t n) {
  const RowTag d;
  const RowVec m = hn::Set(d, mean), r = hn::Set(d, rstd);
  const auto normal_at = [&](auto at) HWY_ATTR { return hn::Mul(hn::Sub(at.load(x), m), r); };
  const double sum = sum_row(n, [&](auto at) HWY_ATTR { return hn::Mul(at.load(dy), at.load(gamma)); });
  const double dot =
      sum_row(n, [&](auto at) HWY_ATTR { return hn::Mul(hn::Mul(at.load(dy), at.load(gamma)), normal_at(at)); });
  const RowVec mean_g = hn::Set(d, static_cast<float>(sum / static_cast<double>(n)));
  const RowVec mean_gn = hn::Set(d, static_cast<float>(dot / static_cast<double>(n)));
  map_row(n, [&](auto at) HWY_ATTR {
    const RowVec normal = normal_at(at), flow = at.load(dy);
    const RowVec inner = hn::NegMulAdd(normal, mean_gn, hn::Sub(hn::Mul(flow, at.load(gamma)), mean_g));
    at.store(hn::Mul(inner, r), dx);
    at.store(hn::MulAdd(flow, normal, at.load(dgamma)), dgamma);
    at.store(hn::Add(at.load(dbeta), flow), dbeta);
  });
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {
namespace {

HWY_EXPORT(forward_row);
HWY_EXPORT(backward_row);

constexpr int64_t kTaskElements = 16384;

std::string accepts_f32(const Site& site) {
  return site.out[0].dtype == DType::f32 ? "" : fmt::format("only f32, got {}", to_string(site.out[0].dtype));
}

std::unique_ptr<Kernel> bind_forward(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t n = site.in[0].shape.dim(-1), rows = site.in[0].numel() / n;
  const double eps = site.node.get<LayerNormParams>().eps;
  return host_kernel([=, &pool = host.pool, y = host.y<float>(0), mean = host.y<float>(1), rstd = host.y<float>(2),
                      x = host.x<float>(0), gamma = host.x<float>(1), beta = host.x<float>(2)] {
    const auto f = &HWY_DYNAMIC_DISPATCH(forward_row);
    pool.run_blocks(rows, std::max<int64_t>(1, kTaskElements / n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) f(y + r * n, mean + r, rstd + r, x + r * n, gamma, beta, n, eps);
    });
  });
}

RowChunks chunks_of(const Site& site) {
  const int64_t n = site.in[1].shape.dim(-1);
  return RowChunks::of(site.in[1].numel() / n, n, kTaskElements, 64);
}

// Partial dgamma and dbeta of every chunk.
int64_t workspace_grad(const Site& site) {
  return chunks_of(site).count * site.in[1].shape.dim(-1) * 2 * size_of(DType::f32);
}

std::unique_ptr<Kernel> bind_grad(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t n = site.in[1].shape.dim(-1);
  const RowChunks chunks = chunks_of(site);
  return host_kernel([=, &pool = host.pool, dx = host.y<float>(0), dgamma = host.y<float>(1), dbeta = host.y<float>(2),
                      dy = host.x<float>(0), x = host.x<float>(1), gamma = host.x<float>(2), mean = host.x<float>(3),
                      rstd = host.x<float>(4), partial = reinterpret_cast<float*>(host.workspace.data())] {
    const auto f = &HWY_DYNAMIC_DISPATCH(backward_row);
    pool.run(chunks.count, [&](int64_t i) {
      float* sums = partial + i * 2 * n;
      std::fill_n(sums, 2 * n, 0.0f);
      for (int64_t r = chunks.begin(i); r < chunks.end(i); ++r)
        f(dx + r * n, sums, sums + n, dy + r * n, x + r * n, gamma, mean[r], rstd[r], n);
    });
    combine_columns(pool, chunks.count, 2 * n, partial, 2 * n,
                    [&](int64_t c, double sum) { (c < n ? dgamma[c] : dbeta[c - n]) = static_cast<float>(sum); });
  });
}

}  // namespace

std::vector<KernelTable::Row> layer_norm_rows() {
  return {{"layer_norm", {"cpu_layer_norm", accepts_f32, nullptr, bind_forward}, kWidened},
          {"layer_norm_grad", {"cpu_layer_norm_grad", accepts_f32, workspace_grad, bind_grad}, kWidened}};
}

}  // namespace lathe::cpu
#endif
