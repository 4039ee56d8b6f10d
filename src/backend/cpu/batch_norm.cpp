// batch_norm and batch_norm_grad on x [rows, C]. Statistics come from chunks of rows that stay in cache: the mean of
// the chunk, then the squares around it; chunks are joined in order in f64 (Chan, Golub and LeVeque, 1979). So x is
// read once for the statistics and once for y, and large means cost no accuracy.
//
// Vectors run along the flat data. Per-channel values are laid out as patterns that repeat them up to some hundred
// values, so that few channels are as fast as many.
#include "ops/batch_norm.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "backend/cpu/norm_columns.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/batch_norm.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

// acc[j] += x[j]
void add_row(float* acc, const float* x, int64_t n) {
  map_row(n, [&](auto at) HWY_ATTR { at.store(hn::Add(at.load(acc), at.load(x)), acc); });
}

// acc[j] += (x[j] - mean[j])^2
void add_squares(float* acc, const float* x, const float* mean, int64_t n) {
  map_row(n, [&](auto at) HWY_ATTR {
    const RowVec centered = hn::Sub(at.load(x), at.load(mean));
    at.store(hn::MulAdd(centered, centered, at.load(acc)), acc);
  });
}

// y = (x - mean) * scale + shift
void normalise(float* y, const float* x, const float* mean, const float* scale, const float* shift, int64_t n) {
  map_row(n, [&](auto at) HWY_ATTR {
    at.store(hn::MulAdd(hn::Sub(at.load(x), at.load(mean)), at.load(scale), at.load(shift)), y);
  });
}

// sum += dy, dot += dy * (x - mean)
void add_grads(float* sum, float* dot, const float* dy, const float* x, const float* mean, int64_t n) {
  map_row(n, [&](auto at) HWY_ATTR {
    const RowVec flow = at.load(dy);
    at.store(hn::Add(at.load(sum), flow), sum);
    at.store(hn::MulAdd(flow, hn::Sub(at.load(x), at.load(mean)), at.load(dot)), dot);
  });
}

// dx = (dy - mean_dy - (x - mean) * slope) * scale
void backward(float* dx, const float* dy, const float* x, const float* mean, const float* mean_dy, const float* slope,
              const float* scale, int64_t n) {
  map_row(n, [&](auto at) HWY_ATTR {
    const RowVec centered = hn::Sub(at.load(x), at.load(mean));
    const RowVec inner = hn::NegMulAdd(centered, at.load(slope), hn::Sub(at.load(dy), at.load(mean_dy)));
    at.store(hn::Mul(inner, at.load(scale)), dx);
  });
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {
namespace {

HWY_EXPORT(add_row);
HWY_EXPORT(add_squares);
HWY_EXPORT(normalise);
HWY_EXPORT(add_grads);
HWY_EXPORT(backward);

constexpr int64_t kChunkElements = 16384;  // fits the second-level cache with room to spare
constexpr int64_t kPattern = 512;
constexpr int64_t kLanes = 16;

// Sizes, and the places of patterns and partial sums in the workspace.
struct Layout {
  int64_t channels = 0;
  int64_t width = 0;  // of a pattern: a multiple of the channels
  RowChunks chunks;

  explicit Layout(const Shape& x) : channels(x.dim(-1)) {
    const int64_t repeat = channels * kLanes <= kPattern ? kPattern / (channels * kLanes) * kLanes
                                                         : std::max<int64_t>(1, kPattern / channels);
    width = channels * repeat;
    chunks = RowChunks::of(x.numel() / channels, channels, kChunkElements, 32);
  }
  int64_t floats() const { return 4 * pattern_stride() + chunks.count * partial_stride(); }
  int64_t pattern_stride() const { return round_up(width, kLanes); }
  // A chunk owns two results per channel and two accumulators and a pattern as wide as the pattern.
  int64_t partial_stride() const { return round_up(2 * channels, kLanes) + 3 * pattern_stride(); }
  float* pattern(float* space, int64_t i) const { return space + i * pattern_stride(); }
  float* partial(float* space, int64_t chunk) const { return space + 4 * pattern_stride() + chunk * partial_stride(); }
  float* scratch(float* space, int64_t chunk, int64_t i) const {
    return partial(space, chunk) + round_up(2 * channels, kLanes) + i * pattern_stride();
  }

  // Calls f(flat begin, count) for pieces of rows [begin, end), each starting at a row and no wider than a pattern.
  template <class F>
  void for_each_piece(int64_t begin, int64_t end, F&& f) const {
    for (int64_t i = begin * channels; i < end * channels; i += width) f(i, std::min(width, end * channels - i));
  }
  // out[c] = sum of acc over the repeats of channel c, in order.
  void fold(const float* acc, float* out) const {
    std::copy_n(acc, channels, out);
    for (int64_t i = channels; i < width; i += channels)
      for (int64_t c = 0; c < channels; ++c) out[c] += acc[i + c];
  }
  void repeat(float* pattern) const {
    for (int64_t i = channels; i < width; i += channels) std::copy_n(pattern, channels, pattern + i);
  }
};

std::string accepts_f32(const Site& site) {
  return site.out[0].dtype == DType::f32 ? "" : fmt::format("only f32, got {}", to_string(site.out[0].dtype));
}

int64_t workspace_forward(const Site& site) { return Layout(site.in[0].shape).floats() * size_of(DType::f32); }
int64_t workspace_grad(const Site& site) { return Layout(site.in[1].shape).floats() * size_of(DType::f32); }

// mean and sum of squared deviations of one chunk, per channel.
void chunk_statistics(const Layout& l, float* space, const float* x, int64_t chunk) {
  float *mean = l.partial(space, chunk), *squares = mean + l.channels;
  float *acc = l.scratch(space, chunk, 0), *pattern = l.scratch(space, chunk, 1);
  const int64_t begin = l.chunks.begin(chunk), end = l.chunks.end(chunk);
  const auto add_row = &HWY_DYNAMIC_DISPATCH(add_row);
  const auto add_squares = &HWY_DYNAMIC_DISPATCH(add_squares);
  std::fill_n(acc, l.width, 0.0f);
  l.for_each_piece(begin, end, [&](int64_t i, int64_t n) { add_row(acc, x + i, n); });
  l.fold(acc, mean);
  const float share = 1.0f / static_cast<float>(end - begin);
  for (int64_t c = 0; c < l.channels; ++c) pattern[c] = mean[c] *= share;
  l.repeat(pattern);
  std::fill_n(acc, l.width, 0.0f);
  l.for_each_piece(begin, end, [&](int64_t i, int64_t n) { add_squares(acc, x + i, pattern, n); });
  l.fold(acc, squares);
}

// Joins the statistics of the chunks of one channel.
void join_statistics(const Layout& l, float* space, int64_t c, double* mean, double* variance) {
  double count = 0, m = 0, squares = 0;
  for (int64_t i = 0; i < l.chunks.count; ++i) {
    const double n = static_cast<double>(l.chunks.end(i) - l.chunks.begin(i));
    const double delta = static_cast<double>(l.partial(space, i)[c]) - m;
    squares += static_cast<double>(l.partial(space, i)[l.channels + c]) + delta * delta * count * n / (count + n);
    m += delta * n / (count + n);
    count += n;
  }
  *mean = m;
  *variance = squares / count;
}

std::unique_ptr<Kernel> bind_forward(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const Layout l(site.in[0].shape);
  const double eps = site.node.get<BatchNormParams>().eps;
  return host_kernel([=, &pool = host.pool, y = host.y<float>(0), mean_out = host.y<float>(1),
                      var_out = host.y<float>(2), x = host.x<float>(0), gamma = host.x<float>(1),
                      beta = host.x<float>(2), space = reinterpret_cast<float*>(host.workspace.data())] {
    pool.run(l.chunks.count, [&](int64_t chunk) { chunk_statistics(l, space, x, chunk); });
    float *mean = l.pattern(space, 0), *scale = l.pattern(space, 1), *shift = l.pattern(space, 2);
    pool.run_blocks(l.channels, kColumnsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double m, variance;
        join_statistics(l, space, c, &m, &variance);
        mean_out[c] = mean[c] = static_cast<float>(m);
        var_out[c] = static_cast<float>(variance);
        const double a = static_cast<double>(gamma[c]) / std::sqrt(variance + eps);
        scale[c] = static_cast<float>(a);
        shift[c] = static_cast<float>(static_cast<double>(beta[c]) - (m - static_cast<double>(mean[c])) * a);
      }
    });
    for (float* pattern : {mean, scale, shift}) l.repeat(pattern);
    const auto f = &HWY_DYNAMIC_DISPATCH(normalise);
    pool.run(l.chunks.count, [&](int64_t chunk) {
      l.for_each_piece(l.chunks.begin(chunk), l.chunks.end(chunk),
                       [&](int64_t i, int64_t n) { f(y + i, x + i, mean, scale, shift, n); });
    });
  });
}

std::unique_ptr<Kernel> bind_grad(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const Layout l(site.in[1].shape);
  const double eps = site.node.get<BatchNormParams>().eps;
  return host_kernel([=, &pool = host.pool, dx = host.y<float>(0), dgamma = host.y<float>(1), dbeta = host.y<float>(2),
                      dy = host.x<float>(0), x = host.x<float>(1), gamma = host.x<float>(2), mean_in = host.x<float>(3),
                      var = host.x<float>(4), space = reinterpret_cast<float*>(host.workspace.data())] {
    float *mean = l.pattern(space, 0), *mean_dy = l.pattern(space, 1), *slope = l.pattern(space, 2),
          *scale = l.pattern(space, 3);
    std::copy_n(mean_in, l.channels, mean);
    l.repeat(mean);
    const auto add = &HWY_DYNAMIC_DISPATCH(add_grads);
    pool.run(l.chunks.count, [&](int64_t chunk) {
      float *sum = l.scratch(space, chunk, 0), *dot = l.scratch(space, chunk, 1);
      std::fill_n(sum, l.width, 0.0f);
      std::fill_n(dot, l.width, 0.0f);
      l.for_each_piece(l.chunks.begin(chunk), l.chunks.end(chunk),
                       [&](int64_t i, int64_t n) { add(sum, dot, dy + i, x + i, mean, n); });
      l.fold(sum, l.partial(space, chunk));
      l.fold(dot, l.partial(space, chunk) + l.channels);
    });
    const double rows = static_cast<double>(l.chunks.rows);
    pool.run_blocks(l.channels, kColumnsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double sum = 0, dot = 0;
        for (int64_t i = 0; i < l.chunks.count; ++i) {
          sum += static_cast<double>(l.partial(space, i)[c]);
          dot += static_cast<double>(l.partial(space, i)[l.channels + c]);
        }
        const double rstd = 1 / std::sqrt(static_cast<double>(var[c]) + eps);
        dbeta[c] = static_cast<float>(sum);
        dgamma[c] = static_cast<float>(dot * rstd);
        mean_dy[c] = static_cast<float>(sum / rows);
        slope[c] = static_cast<float>(dot * rstd * rstd / rows);
        scale[c] = static_cast<float>(static_cast<double>(gamma[c]) * rstd);
      }
    });
    for (float* pattern : {mean_dy, slope, scale}) l.repeat(pattern);
    const auto f = &HWY_DYNAMIC_DISPATCH(backward);
    pool.run(l.chunks.count, [&](int64_t chunk) {
      l.for_each_piece(l.chunks.begin(chunk), l.chunks.end(chunk),
                       [&](int64_t i, int64_t n) { f(dx + i, dy + i, x + i, mean, mean_dy, slope, scale, n); });
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> batch_norm_rows() {
  return {{"batch_norm", {"cpu_batch_norm", accepts_f32, workspace_forward, bind_forward}, kWidened},
          {"batch_norm_grad", {"cpu_batch_norm_grad", accepts_f32, workspace_grad, bind_grad}, kWidened}};
}

}  // namespace lathe::cpu
#endif
