#include "backend/cpu/conv_gemm_depthwise.h"

#include <algorithm>

#include "base/checked.h"

namespace lathe::cpu {

namespace {

// Rows of output pixels whose weight gradient is summed on its own; partial sums are added in order. The number of
// parts depends on the shape only.
constexpr int64_t kMaxParts = 64;

int64_t parts(const ConvShape& s) { return std::min(kMaxParts, s.n * s.oh); }

// w [o, taps] as [taps, o], so that the loops below run along memory.
template <class T>
void transpose_weights(const ConvShape& s, const T* w, T* dst) {
  for (int64_t tap = 0; tap < s.taps(); ++tap)
    for (int64_t o = 0; o < s.o; ++o) dst[tap * s.o + o] = w[o * s.taps() + tap];
}

// y[c * multiplier + i] += x[c] * w[c * multiplier + i]
template <class T>
void accumulate(T* __restrict y, const T* __restrict x, const T* __restrict w, int64_t c, int64_t multiplier) {
  if (multiplier == 1) {
    for (int64_t i = 0; i < c; ++i) y[i] += x[i] * w[i];
    return;
  }
  for (int64_t i = 0; i < c; ++i)
    for (int64_t j = 0; j < multiplier; ++j) y[i * multiplier + j] += x[i] * w[i * multiplier + j];
}

}  // namespace

template <class T>
int64_t depthwise_workspace(ConvPass pass, const ConvShape& s) {
  const int64_t copies = pass == ConvPass::dw ? parts(s) : 1;
  return copies * s.taps() * s.o * static_cast<int64_t>(sizeof(T));
}

template <class T>
void depthwise_forward(ThreadPool& pool, const ConvShape& s, T* y, const T* x, const T* w, const Epilogue<T>& e,
                       std::span<std::byte> workspace) {
  T* weights = reinterpret_cast<T*>(workspace.data());
  transpose_weights(s, w, weights);
  pool.run(s.n * s.oh, [&](int64_t row) {
    const int64_t image = row / s.oh, i = row % s.oh;
    for (int64_t j = 0; j < s.ow; ++j) {
      T* out = y + (row * s.ow + j) * s.o;
      std::fill(out, out + s.o, T(0));
      for (int64_t ky = 0; ky < s.kh; ++ky) {
        const int64_t iy = i * s.stride_h - s.pad_top + ky * s.dil_h;
        if (iy < 0 || iy >= s.h) continue;
        for (int64_t kx = 0; kx < s.kw; ++kx) {
          const int64_t ix = j * s.stride_w - s.pad_left + kx * s.dil_w;
          if (ix < 0 || ix >= s.w) continue;
          accumulate(out, x + ((image * s.h + iy) * s.w + ix) * s.c, weights + (ky * s.kw + kx) * s.o, s.c, s.o / s.c);
        }
      }
      const int64_t pixel = row * s.ow + j;
      for (int64_t o = 0; o < s.o; ++o) {
        T v = out[o];
        if (e.bias_col) v += e.bias_col[o];
        if (e.bias_row) v += e.bias_row[pixel];
        if (e.residual) v += e.residual[pixel * s.o + o];
        if (e.relu) v = v < T(0) ? T(0) : v;
        out[o] = v;
      }
      if (e.post) e.post(e.context, out, pixel, 0, s.o);
    }
  });
}

template <class T>
void depthwise_dx(ThreadPool& pool, const ConvShape& s, T* dx, const T* dy, const T* w,
                  std::span<std::byte> workspace) {
  T* weights = reinterpret_cast<T*>(workspace.data());
  transpose_weights(s, w, weights);
  const int64_t multiplier = s.o / s.c;
  pool.run(s.n * s.h, [&](int64_t row) {
    const int64_t image = row / s.h, i = row % s.h;
    for (int64_t j = 0; j < s.w; ++j) {
      T* out = dx + (row * s.w + j) * s.c;
      std::fill(out, out + s.c, T(0));
      for (int64_t ky = 0; ky < s.kh; ++ky) {
        const int64_t y = i + s.pad_top - ky * s.dil_h, oy = y / s.stride_h;
        if (y < 0 || y % s.stride_h != 0 || oy >= s.oh) continue;
        for (int64_t kx = 0; kx < s.kw; ++kx) {
          const int64_t x = j + s.pad_left - kx * s.dil_w, ox = x / s.stride_w;
          if (x < 0 || x % s.stride_w != 0 || ox >= s.ow) continue;
          const T* g = dy + ((image * s.oh + oy) * s.ow + ox) * s.o;
          const T* tap = weights + (ky * s.kw + kx) * s.o;
          for (int64_t c = 0; c < s.c; ++c)
            for (int64_t m = 0; m < multiplier; ++m) out[c] += g[c * multiplier + m] * tap[c * multiplier + m];
        }
      }
    }
  });
}

template <class T>
void depthwise_dw(ThreadPool& pool, const ConvShape& s, T* dw, const T* x, const T* dy,
                  std::span<std::byte> workspace) {
  T* sums = reinterpret_cast<T*>(workspace.data());  // (part, tap, o)
  const int64_t count = parts(s), rows = s.n * s.oh, multiplier = s.o / s.c;
  pool.run(count, [&](int64_t part) {
    T* mine = sums + part * s.taps() * s.o;
    std::fill(mine, mine + s.taps() * s.o, T(0));
    for (int64_t row = rows * part / count; row < rows * (part + 1) / count; ++row) {
      const int64_t image = row / s.oh, i = row % s.oh;
      for (int64_t ky = 0; ky < s.kh; ++ky) {
        const int64_t iy = i * s.stride_h - s.pad_top + ky * s.dil_h;
        if (iy < 0 || iy >= s.h) continue;
        for (int64_t j = 0; j < s.ow; ++j) {
          const T* g = dy + (row * s.ow + j) * s.o;
          for (int64_t kx = 0; kx < s.kw; ++kx) {
            const int64_t ix = j * s.stride_w - s.pad_left + kx * s.dil_w;
            if (ix < 0 || ix >= s.w) continue;
            accumulate(mine + (ky * s.kw + kx) * s.o, x + ((image * s.h + iy) * s.w + ix) * s.c, g, s.c, multiplier);
          }
        }
      }
    }
  });
  for (int64_t tap = 0; tap < s.taps(); ++tap) {
    for (int64_t o = 0; o < s.o; ++o) {
      T sum = 0;
      for (int64_t part = 0; part < count; ++part) sum += sums[(part * s.taps() + tap) * s.o + o];
      dw[o * s.taps() + tap] = sum;
    }
  }
}

template int64_t depthwise_workspace<float>(ConvPass, const ConvShape&);
template int64_t depthwise_workspace<double>(ConvPass, const ConvShape&);
template void depthwise_forward(ThreadPool&, const ConvShape&, float*, const float*, const float*,
                                const Epilogue<float>&, std::span<std::byte>);
template void depthwise_forward(ThreadPool&, const ConvShape&, double*, const double*, const double*,
                                const Epilogue<double>&, std::span<std::byte>);
template void depthwise_dx(ThreadPool&, const ConvShape&, float*, const float*, const float*, std::span<std::byte>);
template void depthwise_dx(ThreadPool&, const ConvShape&, double*, const double*, const double*, std::span<std::byte>);
template void depthwise_dw(ThreadPool&, const ConvShape&, float*, const float*, const float*, std::span<std::byte>);
template void depthwise_dw(ThreadPool&, const ConvShape&, double*, const double*, const double*, std::span<std::byte>);

}  // namespace lathe::cpu
