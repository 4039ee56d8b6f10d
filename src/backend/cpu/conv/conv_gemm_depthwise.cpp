// Vectors run over channels. f64, and more than one output channel per input channel, are plain loops.
#include "backend/cpu/conv/conv_gemm_depthwise.h"

#include <algorithm>
#include <type_traits>

#include "base/checked.h"

#ifndef LATHE_CONV_DEPTHWISE_LINE  // seen once per instruction set
#define LATHE_CONV_DEPTHWISE_LINE
namespace lathe::cpu {
namespace {

constexpr int64_t kMostTaps = 32;

// Pixels beside each other that sum the same taps: y[i] = sum over t of x[offset[t] + i] * w[t][i] for the first, x and
// y further by their steps for the next; added to y where `add` is set.
template <class T>
struct Line {
  T* y = nullptr;
  const T* x = nullptr;
  int64_t y_step = 0, x_step = 0, pixels = 0, taps = 0;
  bool add = false;
  int64_t offset[kMostTaps];
  const T* w[kMostTaps];
};

}  // namespace
}  // namespace lathe::cpu
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/conv/conv_gemm_depthwise.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

#include "backend/cpu/row_simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

// kTaps > 0: that many, their weights in registers.
template <int kTaps>
HWY_INLINE void sum_line(const Line<float>& l, int64_t n) {
  map_row(n, [&](auto at) HWY_ATTR {
    RowVec w[kTaps > 0 ? kTaps : 1];
    if constexpr (kTaps > 0) {
#pragma GCC unroll 16
      for (int t = 0; t < kTaps; ++t) w[t] = at.load(l.w[t]);
    }
    const float* x = l.x;
    float* y = l.y;
    for (int64_t p = 0; p < l.pixels; ++p, x += l.x_step, y += l.y_step) {
      RowVec sum = l.add ? at.load(y) : hn::Zero(RowTag());
      if constexpr (kTaps > 0) {
#pragma GCC unroll 16
        for (int t = 0; t < kTaps; ++t) sum = hn::MulAdd(at.load(x + l.offset[t]), w[t], sum);
      } else {
        for (int64_t t = 0; t < l.taps; ++t) sum = hn::MulAdd(at.load(x + l.offset[t]), at.load(l.w[t]), sum);
      }
      at.store(sum, y);
    }
  });
}

void sum_taps(const Line<float>& l, int64_t n) {
  switch (l.taps) {
    case 1: return sum_line<1>(l, n);
    case 2: return sum_line<2>(l, n);
    case 4: return sum_line<4>(l, n);
    case 6: return sum_line<6>(l, n);
    case 9: return sum_line<9>(l, n);
    default: return sum_line<0>(l, n);
  }
}

// sum[i] += sum over p < pixels of x[p * step + i] * g[p * n + i]
void sum_pixels(float* sum, const float* x, int64_t step, const float* g, int64_t pixels, int64_t n) {
  map_row(n, [&](auto at) HWY_ATTR {
    RowVec even = at.load(sum), odd = hn::Zero(RowTag());
    int64_t p = 0;
    for (; p + 1 < pixels; p += 2) {
      even = hn::MulAdd(at.load(x + p * step), at.load(g + p * n), even);
      odd = hn::MulAdd(at.load(x + (p + 1) * step), at.load(g + (p + 1) * n), odd);
    }
    if (p < pixels) even = hn::MulAdd(at.load(x + p * step), at.load(g + p * n), even);
    at.store(hn::Add(even, odd), sum);
  });
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {

namespace {

HWY_EXPORT(sum_taps);
HWY_EXPORT(sum_pixels);

// Rows of output pixels whose weight gradient is summed on its own; partial sums are added in order. The number of
// parts depends on the shape only.
constexpr int64_t kMaxParts = 64;

int64_t parts(const ConvGeometry& s) { return std::min(kMaxParts, s.batch * s.out_h); }

// w [o, taps] as [taps, o], so that the loops below run along memory.
template <class T>
void transpose_weights(const ConvGeometry& s, const T* w, T* dst) {
  for (int64_t tap = 0; tap < s.taps(); ++tap)
    for (int64_t o = 0; o < s.out_c; ++o) dst[tap * s.out_c + o] = w[o * s.taps() + tap];
}

// y[c * multiplier + i] += x[c] * w[c * multiplier + i]
template <class T>
void accumulate(T* __restrict y, const T* __restrict x, const T* __restrict w, int64_t c, int64_t multiplier) {
  for (int64_t i = 0; i < c; ++i)
    for (int64_t j = 0; j < multiplier; ++j) y[i * multiplier + j] += x[i] * w[i * multiplier + j];
}

template <ConvPass pass, class T>
void sum_plain(const ConvGeometry& s, const Line<T>& l) {
  const int64_t multiplier = s.out_c / s.in_c, n = pass == ConvPass::dx ? s.in_c : s.out_c;
  for (int64_t p = 0; p < l.pixels; ++p) {
    T* y = l.y + p * l.y_step;
    const T* x = l.x + p * l.x_step;
    if (!l.add) std::fill(y, y + n, T(0));
    for (int64_t t = 0; t < l.taps; ++t) {
      const T *in = x + l.offset[t], *w = l.w[t];
      if constexpr (pass == ConvPass::dx) {
        for (int64_t c = 0; c < s.in_c; ++c)
          for (int64_t m = c * multiplier; m < (c + 1) * multiplier; ++m) y[c] += in[m] * w[m];
      } else {
        accumulate(y, in, w, s.in_c, multiplier);
      }
    }
  }
}

template <ConvPass pass, class T>
void sum(const ConvGeometry& s, const Line<T>& l) {
  if constexpr (std::is_same_v<T, float>)
    if (s.out_c == s.in_c) return HWY_DYNAMIC_DISPATCH(sum_taps)(l, s.in_c);
  sum_plain<pass>(s, l);
}

// Along one axis: result m takes from tap k pixel m * stride + (base + k * step) / divide of the other image, where
// that is a whole number within its length.
struct Axis {
  int64_t taps, length, stride, base, step, divide;

  bool shift(int64_t k, int64_t& out) const {
    out = base + k * step;
    if (divide == 1) return true;
    const bool whole = out % divide == 0;
    out /= divide;
    return whole;
  }
};

// A part of a row of one pass: results [begin, end), `y_step` values apart. The first decides which columns are within.
template <ConvPass pass, class T>
void sum_piece(const ConvGeometry& s, T* y, int64_t y_step, const T* x, const T* weights, const Axis& rows,
               const Axis& columns, int64_t begin, int64_t end) {
  const int64_t width = pass == ConvPass::dx ? s.out_c : s.in_c;  // of a pixel of x
  Line<T> l;
  l.y = y + begin * y_step;
  l.y_step = y_step;
  l.x_step = columns.stride * width;
  l.x = x + begin * l.x_step;
  l.pixels = end - begin;
  for (int64_t ky = 0, row = 0; ky < rows.taps; ++ky) {
    if (!rows.shift(ky, row) || row < 0 || row >= rows.length) continue;
    for (int64_t kx = 0, column = 0; kx < columns.taps; ++kx) {
      if (!columns.shift(kx, column)) continue;
      const int64_t at = begin * columns.stride + column;
      if (at < 0 || at >= columns.length) continue;
      if (l.taps == kMostTaps) {
        sum<pass>(s, l);
        l.add = true;
        l.taps = 0;
      }
      l.offset[l.taps] = (row * columns.length + column) * width;
      l.w[l.taps++] = weights + (ky * columns.taps + kx) * s.out_c;
    }
  }
  sum<pass>(s, l);
}

// A row of results: those that miss columns one by one, the others at once.
template <ConvPass pass, class T>
void sum_row(const ConvGeometry& s, T* y, int64_t y_step, const T* x, const T* weights, const Axis& rows,
             const Axis& columns, int64_t count) {
  int64_t first = 0, last = count;
  for (int64_t k = 0, column = 0; k < columns.taps; ++k) {
    if (!columns.shift(k, column)) continue;
    if (column < 0) first = std::max(first, ceil_div(-column, columns.stride));
    last = std::min(last, column < columns.length ? ceil_div(columns.length - column, columns.stride) : 0);
  }
  first = std::min(first, count);
  last = std::max(last, first);
  const auto piece = [&](int64_t begin, int64_t end) {
    sum_piece<pass>(s, y, y_step, x, weights, rows, columns, begin, end);
  };
  for (int64_t m = 0; m < first; ++m) piece(m, m + 1);
  if (first < last) piece(first, last);
  for (int64_t m = last; m < count; ++m) piece(m, m + 1);
}

// One tap's gradient along a row of output pixels; x and g are those of the first.
template <class T>
void add_products(const ConvGeometry& s, T* sum, const T* x, const T* g, int64_t pixels) {
  if constexpr (std::is_same_v<T, float>)
    if (s.out_c == s.in_c) return HWY_DYNAMIC_DISPATCH(sum_pixels)(sum, x, s.stride_w * s.in_c, g, pixels, s.in_c);
  for (int64_t p = 0; p < pixels; ++p)
    accumulate(sum, x + p * s.stride_w * s.in_c, g + p * s.out_c, s.in_c, s.out_c / s.in_c);
}

// Rows per task: about 64 KiB of results.
int64_t grain(int64_t row_values) { return std::max<int64_t>(1, (16 << 10) / std::max<int64_t>(1, row_values)); }

template <class T>
void finish(const Epilogue<T>& e, T* out, int64_t pixel, int64_t n) {
  if (e.bias_col || e.bias_row || e.residual || e.relu) {
    for (int64_t o = 0; o < n; ++o) {
      T v = out[o];
      if (e.bias_col) v += e.bias_col[o];
      if (e.bias_row) v += e.bias_row[pixel];
      if (e.residual) v += e.residual[pixel * n + o];
      if (e.relu) v = v < T(0) ? T(0) : v;
      out[o] = v;
    }
  }
  if (e.post) e.post(e.context, out, pixel, 0, n);
}

}  // namespace

template <class T>
int64_t depthwise_workspace(ConvPass pass, const ConvGeometry& s) {
  const int64_t copies = pass == ConvPass::dw ? parts(s) : 1;
  return copies * s.taps() * s.out_c * static_cast<int64_t>(sizeof(T));
}

template <class T>
void depthwise_forward(ThreadPool& pool, const ConvGeometry& s, T* y, const T* x, const T* w, const Epilogue<T>& e,
                       std::span<std::byte> workspace) {
  T* weights = reinterpret_cast<T*>(workspace.data());
  transpose_weights(s, w, weights);
  const Axis columns{s.kernel_w, s.in_w, s.stride_w, -s.pad_left, s.dilation_w, 1};
  pool.run_blocks(s.batch * s.out_h, grain(s.out_w * s.out_c), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Axis rows{s.kernel_h, s.in_h, 1, row % s.out_h * s.stride_h - s.pad_top, s.dilation_h, 1};
      sum_row<ConvPass::forward>(s, y + row * s.out_w * s.out_c, s.out_c, x + row / s.out_h * s.in_h * s.in_w * s.in_c,
                                 weights, rows, columns, s.out_w);
      for (int64_t pixel = row * s.out_w; pixel < (row + 1) * s.out_w; ++pixel)
        finish(e, y + pixel * s.out_c, pixel, s.out_c);
    }
  });
}

// Columns in classes by their position modulo the stride: in each the same taps are live.
template <class T>
void depthwise_dx(ThreadPool& pool, const ConvGeometry& s, T* dx, const T* dy, const T* w,
                  std::span<std::byte> workspace) {
  T* weights = reinterpret_cast<T*>(workspace.data());
  transpose_weights(s, w, weights);
  pool.run_blocks(s.batch * s.in_h, grain(s.in_w * s.in_c), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const Axis rows{s.kernel_h, s.out_h, 1, row % s.in_h + s.pad_top, -s.dilation_h, s.stride_h};
      const T* image = dy + row / s.in_h * s.out_h * s.out_w * s.out_c;
      for (int64_t j = 0; j < std::min(s.stride_w, s.in_w); ++j) {
        const Axis columns{s.kernel_w, s.out_w, 1, j + s.pad_left, -s.dilation_w, s.stride_w};
        sum_row<ConvPass::dx>(s, dx + (row * s.in_w + j) * s.in_c, s.stride_w * s.in_c, image, weights, rows, columns,
                              ceil_div(s.in_w - j, s.stride_w));
      }
    }
  });
}

template <class T>
void depthwise_dw(ThreadPool& pool, const ConvGeometry& s, T* dw, const T* x, const T* dy,
                  std::span<std::byte> workspace) {
  T* sums = reinterpret_cast<T*>(workspace.data());  // (part, tap, o)
  const int64_t count = parts(s), rows = s.batch * s.out_h;
  pool.run(count, [&](int64_t part) {
    T* mine = sums + part * s.taps() * s.out_c;
    std::fill(mine, mine + s.taps() * s.out_c, T(0));
    for (int64_t row = rows * part / count; row < rows * (part + 1) / count; ++row) {
      const T* image = x + row / s.out_h * s.in_h * s.in_w * s.in_c;
      for (int64_t ky = 0; ky < s.kernel_h; ++ky) {
        const int64_t iy = row % s.out_h * s.stride_h - s.pad_top + ky * s.dilation_h;
        if (iy < 0 || iy >= s.in_h) continue;
        for (int64_t kx = 0; kx < s.kernel_w; ++kx) {
          const int64_t shift = kx * s.dilation_w - s.pad_left;  // ix = j * stride + shift
          const int64_t first = shift < 0 ? ceil_div(-shift, s.stride_w) : 0;
          const int64_t last = shift < s.in_w ? std::min(s.out_w, ceil_div(s.in_w - shift, s.stride_w)) : 0;
          if (first < last)
            add_products(s, mine + (ky * s.kernel_w + kx) * s.out_c,
                         image + (iy * s.in_w + first * s.stride_w + shift) * s.in_c,
                         dy + (row * s.out_w + first) * s.out_c, last - first);
        }
      }
    }
  });
  for (int64_t tap = 0; tap < s.taps(); ++tap) {
    for (int64_t o = 0; o < s.out_c; ++o) {
      T sum = 0;
      for (int64_t part = 0; part < count; ++part) sum += sums[(part * s.taps() + tap) * s.out_c + o];
      dw[o * s.taps() + tap] = sum;
    }
  }
}

template int64_t depthwise_workspace<float>(ConvPass, const ConvGeometry&);
template int64_t depthwise_workspace<double>(ConvPass, const ConvGeometry&);
template void depthwise_forward(ThreadPool&, const ConvGeometry&, float*, const float*, const float*,
                                const Epilogue<float>&, std::span<std::byte>);
template void depthwise_forward(ThreadPool&, const ConvGeometry&, double*, const double*, const double*,
                                const Epilogue<double>&, std::span<std::byte>);
template void depthwise_dx(ThreadPool&, const ConvGeometry&, float*, const float*, const float*, std::span<std::byte>);
template void depthwise_dx(ThreadPool&, const ConvGeometry&, double*, const double*, const double*,
                           std::span<std::byte>);
template void depthwise_dw(ThreadPool&, const ConvGeometry&, float*, const float*, const float*, std::span<std::byte>);
template void depthwise_dw(ThreadPool&, const ConvGeometry&, double*, const double*, const double*,
                           std::span<std::byte>);

}  // namespace lathe::cpu
#endif
