#include "backend/cpu/conv_gemm.h"

#include <algorithm>
#include <numeric>
#include <type_traits>

#include "backend/cpu/conv_gemm_depthwise.h"
#include "base/checked.h"

namespace lathe::cpu {

namespace {

template <class T>
int64_t product_workspace(const GemmShape& shape, int threads) {
  return std::is_same_v<T, float> ? gemm_workspace(shape, threads) : 0;
}

GemmShape forward_shape(const ConvShape& s) {
  return {.m = s.pixels(), .n = s.group_o(), .k = s.taps() * s.group_c(), .batch = s.groups, .batch_inner = 1};
}

GemmShape dw_shape(const ConvShape& s) {
  return {.m = s.group_o(), .n = s.taps() * s.group_c(), .k = s.pixels(), .batch = s.groups, .batch_inner = 1};
}

// x as the matrix of patches: rows are output pixels.
ImageView patches(const ConvShape& s) {
  ImageView v;
  v.h = s.h;
  v.w = s.w;
  v.pitch = s.c;
  v.c = s.group_c();
  v.grid_h = s.oh;
  v.grid_w = s.ow;
  v.taps_y = s.kh;
  v.taps_x = s.kw;
  v.step_y = s.stride_h;
  v.step_x = s.stride_w;
  v.base_y = -s.pad_top;
  v.base_x = -s.pad_left;
  v.delta_y = s.dil_h;
  v.delta_x = s.dil_w;
  return v;
}

// Along one axis, the pixels of dx with index = phase (mod stride) and the taps that reach them: tap t is kernel
// index first + t * step and reads dy at i + base + t * delta for pixel number i of the phase. Taps are taken from the
// last to the first, so that dy is read in the order of memory.
struct Phase {
  int64_t size = 0;  // pixels of dx
  int64_t taps = 0;
  int64_t first = 0, step = 0, base = 0, delta = 0;
};

Phase make_phase(int64_t phase, int64_t size, int64_t stride, int64_t pad, int64_t kernel, int64_t dilation) {
  Phase result;
  result.size = size > phase ? ceil_div(size - phase, stride) : 0;
  const int64_t common = std::gcd(dilation, stride);
  result.step = -(stride / common);
  result.delta = dilation / common;
  for (int64_t k = kernel - 1; k >= 0; --k) {
    const int64_t at = phase + pad - k * dilation;
    if (at % stride != 0) continue;
    if (result.taps == 0) {
      result.first = k;
      result.base = at / stride;
    }
    ++result.taps;
  }
  return result;
}

// The pixels of dx split by their position modulo the strides: in each class the same taps are live.
template <class F>
void for_each_class(const ConvShape& s, F&& f) {
  for (int64_t py = 0; py < s.stride_h; ++py) {
    const Phase y = make_phase(py, s.h, s.stride_h, s.pad_top, s.kh, s.dil_h);
    for (int64_t px = 0; px < s.stride_w; ++px) {
      const Phase x = make_phase(px, s.w, s.stride_w, s.pad_left, s.kw, s.dil_w);
      if (y.size > 0 && x.size > 0) f(py, px, y, x);
    }
  }
}

GemmShape dx_shape(const ConvShape& s, const Phase& y, const Phase& x) {
  return {.m = s.n * y.size * x.size,
          .n = s.group_c(),
          .k = y.taps * x.taps * s.group_o(),
          .batch = s.groups,
          .batch_inner = 1};
}

}  // namespace

template <class T>
int64_t conv2d_workspace(ConvPass pass, const ConvShape& s, int threads) {
  if (s.depthwise()) return depthwise_workspace<T>(pass, s);
  if (pass == ConvPass::forward) return product_workspace<T>(forward_shape(s), threads);
  if (pass == ConvPass::dw) return product_workspace<T>(dw_shape(s), threads);
  int64_t bytes = 0;
  for_each_class(s, [&](int64_t, int64_t, const Phase& y, const Phase& x) {
    bytes = std::max(bytes, product_workspace<T>(dx_shape(s, y, x), threads));
  });
  return bytes;
}

template <class T>
void conv2d_forward(ThreadPool& pool, const ConvShape& s, T* y, const T* x, const T* w, const Epilogue<T>& epilogue,
                    std::span<std::byte> workspace) {
  if (s.depthwise()) return depthwise_forward(pool, s, y, x, w, epilogue, workspace);
  GemmArgs<T> args;
  args.shape = forward_shape(s);
  args.a.kind = Operand<T>::Kind::image;
  args.a.data = x;
  args.a.batch_stride = s.group_c();
  args.a.view = patches(s);
  args.b = rhs(w, args.shape.k, true, s.group_o() * args.shape.k);
  args.c.data = y;
  args.c.ld = s.o;
  args.c.batch_stride = s.group_o();
  args.epilogue = epilogue;
  args.epilogue.batch_rows = 0;
  args.epilogue.batch_cols = s.group_o();
  args.workspace = workspace;
  gemm(pool, args);
}

template <class T>
void conv2d_dx(ThreadPool& pool, const ConvShape& s, T* dx, const T* dy, const T* w, std::span<std::byte> workspace) {
  if (s.depthwise()) return depthwise_dx(pool, s, dx, dy, w, workspace);
  const int64_t filter = s.taps() * s.group_c();
  for_each_class(s, [&](int64_t py, int64_t px, const Phase& y, const Phase& x) {
    GemmArgs<T> args;
    args.shape = dx_shape(s, y, x);
    args.a.kind = Operand<T>::Kind::image;
    args.a.data = dy;
    args.a.batch_stride = s.group_o();
    ImageView& v = args.a.view;
    v.h = s.oh;
    v.w = s.ow;
    v.pitch = s.o;
    v.c = s.group_o();
    v.grid_h = y.size;
    v.grid_w = x.size;
    v.taps_y = y.taps;
    v.taps_x = x.taps;
    v.base_y = y.base;
    v.base_x = x.base;
    v.delta_y = y.delta;
    v.delta_x = x.delta;
    args.b.kind = Operand<T>::Kind::k_taps;
    args.b.data = w + (y.first * s.kw + x.first) * s.group_c();
    args.b.ld = filter;
    args.b.batch_stride = s.group_o() * filter;
    args.b.taps_x = std::max<int64_t>(1, x.taps);
    args.b.inner = s.group_o();
    args.b.tap_y_stride = y.step * s.kw * s.group_c();
    args.b.tap_x_stride = x.step * s.group_c();
    args.c.data = dx + (py * s.w + px) * s.c;
    args.c.ld = s.stride_w * s.c;
    args.c.batch_stride = s.group_c();
    if (s.stride_h > 1 || s.stride_w > 1) {
      args.c.grid_h = y.size;
      args.c.grid_w = x.size;
      args.c.image_stride = s.h * s.w * s.c;
      args.c.row_stride = s.stride_h * s.w * s.c;
    }
    args.workspace = workspace;
    gemm(pool, args);
  });
}

template <class T>
void conv2d_dw(ThreadPool& pool, const ConvShape& s, T* dw, const T* x, const T* dy, std::span<std::byte> workspace) {
  if (s.depthwise()) return depthwise_dw(pool, s, dw, x, dy, workspace);
  GemmArgs<T> args;
  args.shape = dw_shape(s);
  args.a = lhs(dy, s.o, true, s.group_o());
  args.b.kind = Operand<T>::Kind::image_k;
  args.b.data = x;
  args.b.batch_stride = s.group_c();
  args.b.view = patches(s);
  args.c.data = dw;
  args.c.ld = args.shape.n;
  args.c.batch_stride = args.shape.m * args.shape.n;
  args.workspace = workspace;
  gemm(pool, args);
}

template int64_t conv2d_workspace<float>(ConvPass, const ConvShape&, int);
template int64_t conv2d_workspace<double>(ConvPass, const ConvShape&, int);
template void conv2d_forward(ThreadPool&, const ConvShape&, float*, const float*, const float*, const Epilogue<float>&,
                             std::span<std::byte>);
template void conv2d_forward(ThreadPool&, const ConvShape&, double*, const double*, const double*,
                             const Epilogue<double>&, std::span<std::byte>);
template void conv2d_dx(ThreadPool&, const ConvShape&, float*, const float*, const float*, std::span<std::byte>);
template void conv2d_dx(ThreadPool&, const ConvShape&, double*, const double*, const double*, std::span<std::byte>);
template void conv2d_dw(ThreadPool&, const ConvShape&, float*, const float*, const float*, std::span<std::byte>);
template void conv2d_dw(ThreadPool&, const ConvShape&, double*, const double*, const double*, std::span<std::byte>);

}  // namespace lathe::cpu
