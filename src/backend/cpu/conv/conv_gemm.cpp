#include "backend/cpu/conv/conv_gemm.h"

#include <algorithm>
#include <type_traits>

#include "backend/conv_phase.h"
#include "backend/cpu/conv/conv_gemm_depthwise.h"
#include "base/checked.h"

namespace lathe::cpu {

namespace {

template <class T>
int64_t product_workspace(const GemmShape& shape, int threads) {
  return std::is_same_v<T, float> ? gemm_workspace(shape, threads) : 0;
}

GemmShape forward_shape(const ConvGeometry& s) {
  return {.m = s.pixels(), .n = s.group_out, .k = s.taps() * s.group_in, .batch = s.groups, .batch_inner = 1};
}

GemmShape dw_shape(const ConvGeometry& s) {
  return {.m = s.group_out, .n = s.taps() * s.group_in, .k = s.pixels(), .batch = s.groups, .batch_inner = 1};
}

GemmShape transposed_dw_shape(const ConvGeometry& s) {
  return {.m = s.taps() * s.in_c, .n = s.out_c, .k = s.pixels(), .batch = 1, .batch_inner = 1};
}

int64_t transposed_bytes(const ConvGeometry& s) {
  return round_up(s.out_c * s.taps() * s.in_c * static_cast<int64_t>(sizeof(float)), 64);
}

// x as the matrix of patches: rows are output pixels.
ImageView patches(const ConvGeometry& s) {
  ImageView v;
  v.h = s.in_h;
  v.w = s.in_w;
  v.pitch = s.in_c;
  v.c = s.group_in;
  v.grid_h = s.out_h;
  v.grid_w = s.out_w;
  v.taps_y = s.kernel_h;
  v.taps_x = s.kernel_w;
  v.step_y = s.stride_h;
  v.step_x = s.stride_w;
  v.base_y = -s.pad_top;
  v.base_x = -s.pad_left;
  v.delta_y = s.dilation_h;
  v.delta_x = s.dilation_w;
  return v;
}

// Each output pixel sees one input pixel, in the same order: the image is the matrix.
bool pointwise(const ConvGeometry& s) {
  return s.taps() == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_top == 0 && s.pad_left == 0 &&
         s.out_h == s.in_h && s.out_w == s.in_w;
}

template <class T>
Operand<T> patches_operand(const ConvGeometry& s, const T* x, typename Operand<T>::Kind kind) {
  Operand<T> op;
  op.kind = kind;
  op.data = x;
  op.batch_stride = s.group_in;
  op.view = patches(s);
  return op;
}

// Images with few channels are first copied with their padding around them: each pixel is read kh * kw times, and a
// kernel that need not look for borders reads it in place. In f64 speed does not matter.
template <class T>
bool copies_padding(const ConvGeometry& s) {
  return std::is_same_v<T, float> && s.groups == 1 && s.in_c < 8 && s.taps() > 1;
}

// The same convolution on the padded copy, which holds exactly the pixels that are used.
ConvGeometry padded_geometry(const ConvGeometry& s) {
  ConvGeometry padded = s;
  padded.in_h = (s.out_h - 1) * s.stride_h + s.rows().reach();
  padded.in_w = (s.out_w - 1) * s.stride_w + s.columns().reach();
  padded.pad_top = padded.pad_left = 0;
  return padded;
}

int64_t padded_bytes(const ConvGeometry& padded) {
  return round_up(padded.batch * padded.in_h * padded.in_w * padded.in_c * static_cast<int64_t>(sizeof(float)), 64);
}

template <class T>
void copy_padded(ThreadPool& pool, const ConvGeometry& s, const ConvGeometry& padded, const T* x, T* dst) {
  const int64_t row = padded.in_w * s.in_c;
  const int64_t first = s.pad_left, last = std::min(padded.in_w, s.in_w + s.pad_left);  // columns that x has
  pool.run_blocks(s.batch * padded.in_h, std::max<int64_t>(1, (16 << 10) / row), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t y = i % padded.in_h - s.pad_top;
      T* out = dst + i * row;
      if (y < 0 || y >= s.in_h || first >= last) {
        std::fill(out, out + row, T(0));
        continue;
      }
      const T* in = x + (i / padded.in_h * s.in_h + y) * s.in_w * s.in_c;
      std::fill(out, out + first * s.in_c, T(0));
      std::copy(in, in + (last - first) * s.in_c, out + first * s.in_c);
      std::fill(out + last * s.in_c, out + row, T(0));
    }
  });
}

// The pixels of dx split by their position modulo the strides: in each class the same taps are live.
template <class F>
void for_each_class(const ConvGeometry& s, F&& f) {
  for (int64_t py = 0; py < s.stride_h; ++py) {
    const ConvPhase y = conv_phase(py, s.rows());
    for (int64_t px = 0; px < s.stride_w; ++px) {
      const ConvPhase x = conv_phase(px, s.columns());
      if (y.size > 0 && x.size > 0) f(py, px, y, x);
    }
  }
}

GemmShape dx_shape(const ConvGeometry& s, const ConvPhase& y, const ConvPhase& x) {
  return {.m = s.batch * y.size * x.size,
          .n = s.group_in,
          .k = y.taps * x.taps * s.group_out,
          .batch = s.groups,
          .batch_inner = 1};
}

template <class T>
void forward(ThreadPool& pool, const ConvGeometry& s, T* y, const T* x, const T* w, const Epilogue<T>& epilogue,
             std::span<std::byte> workspace) {
  GemmArgs<T> args;
  args.shape = forward_shape(s);
  args.a = patches_operand(s, x, Operand<T>::Kind::image);
  if (pointwise(s)) args.a = lhs(x, s.in_c, false, s.group_in);
  args.b = rhs(w, args.shape.k, true, s.group_out * args.shape.k);
  args.c.data = y;
  args.c.ld = s.out_c;
  args.c.batch_stride = s.group_out;
  args.epilogue = epilogue;
  args.epilogue.batch_rows = 0;
  args.epilogue.batch_cols = s.group_out;
  args.workspace = workspace;
  gemm(pool, args);
}

// dw of an image with few channels, padding included, as its transpose [taps, o]: then the image is the operand that
// is read in place and dy, with its many channels, fills the vectors.
template <class T>
void small_dw(ThreadPool& pool, const ConvGeometry& s, T* dw, const T* x, const T* dy, std::span<std::byte> workspace) {
  T* sums = reinterpret_cast<T*>(workspace.data());
  GemmArgs<T> args;
  args.shape = transposed_dw_shape(s);
  args.a = patches_operand(s, x, Operand<T>::Kind::image_k);
  args.b = rhs(dy, s.out_c);
  args.c.data = sums;
  args.c.ld = s.out_c;
  args.workspace = workspace.subspan(static_cast<size_t>(transposed_bytes(s)));
  gemm(pool, args);
  for (int64_t o = 0; o < s.out_c; ++o)
    for (int64_t r = 0; r < args.shape.m; ++r) dw[o * args.shape.m + r] = sums[r * s.out_c + o];
}

}  // namespace

template <class T>
int64_t conv2d_workspace(ConvPass pass, const ConvGeometry& s, int threads) {
  if (s.is_depthwise()) return depthwise_workspace<T>(pass, s);
  if (pass != ConvPass::dx && copies_padding<T>(s)) {
    const ConvGeometry padded = padded_geometry(s);
    if (pass == ConvPass::forward) return padded_bytes(padded) + product_workspace<T>(forward_shape(s), threads);
    return padded_bytes(padded) + transposed_bytes(s) + product_workspace<T>(transposed_dw_shape(s), threads);
  }
  if (pass == ConvPass::forward) return product_workspace<T>(forward_shape(s), threads);
  if (pass == ConvPass::dw) return product_workspace<T>(dw_shape(s), threads);
  int64_t bytes = 0;
  for_each_class(s, [&](int64_t, int64_t, const ConvPhase& y, const ConvPhase& x) {
    bytes = std::max(bytes, product_workspace<T>(dx_shape(s, y, x), threads));
  });
  return bytes;
}

template <class T>
void conv2d_forward(ThreadPool& pool, const ConvGeometry& s, T* y, const T* x, const T* w, const Epilogue<T>& epilogue,
                    std::span<std::byte> workspace) {
  if (s.is_depthwise()) return depthwise_forward(pool, s, y, x, w, epilogue, workspace);
  if (copies_padding<T>(s)) {
    const ConvGeometry padded = padded_geometry(s);
    T* copy = reinterpret_cast<T*>(workspace.data());
    copy_padded(pool, s, padded, x, copy);
    return forward(pool, padded, y, copy, w, epilogue, workspace.subspan(static_cast<size_t>(padded_bytes(padded))));
  }
  forward(pool, s, y, x, w, epilogue, workspace);
}

template <class T>
void conv2d_dx(ThreadPool& pool, const ConvGeometry& s, T* dx, const T* dy, const T* w,
               std::span<std::byte> workspace) {
  if (s.is_depthwise()) return depthwise_dx(pool, s, dx, dy, w, workspace);
  const int64_t filter = s.taps() * s.group_in;
  for_each_class(s, [&](int64_t py, int64_t px, const ConvPhase& y, const ConvPhase& x) {
    GemmArgs<T> args;
    args.shape = dx_shape(s, y, x);
    args.a.kind = Operand<T>::Kind::image;
    args.a.data = dy;
    args.a.batch_stride = s.group_out;
    ImageView& v = args.a.view;
    v.h = s.out_h;
    v.w = s.out_w;
    v.pitch = s.out_c;
    v.c = s.group_out;
    v.grid_h = y.size;
    v.grid_w = x.size;
    v.taps_y = y.taps;
    v.taps_x = x.taps;
    v.base_y = y.base;
    v.base_x = x.base;
    v.delta_y = y.delta;
    v.delta_x = x.delta;
    if (pointwise(s)) args.a = lhs(dy, s.out_c, false, s.group_out);
    args.b.kind = Operand<T>::Kind::k_taps;
    args.b.data = w + (y.first * s.kernel_w + x.first) * s.group_in;
    args.b.ld = filter;
    args.b.batch_stride = s.group_out * filter;
    args.b.taps_x = std::max<int64_t>(1, x.taps);
    args.b.inner = s.group_out;
    args.b.tap_y_stride = y.step * s.kernel_w * s.group_in;
    args.b.tap_x_stride = x.step * s.group_in;
    args.c.data = dx + (py * s.in_w + px) * s.in_c;
    args.c.ld = s.stride_w * s.in_c;
    args.c.batch_stride = s.group_in;
    if (s.stride_h > 1 || s.stride_w > 1) {
      args.c.grid_h = y.size;
      args.c.grid_w = x.size;
      args.c.image_stride = s.in_h * s.in_w * s.in_c;
      args.c.row_stride = s.stride_h * s.in_w * s.in_c;
    }
    args.workspace = workspace;
    gemm(pool, args);
  });
}

template <class T>
void conv2d_dw(ThreadPool& pool, const ConvGeometry& s, T* dw, const T* x, const T* dy,
               std::span<std::byte> workspace) {
  if (s.is_depthwise()) return depthwise_dw(pool, s, dw, x, dy, workspace);
  if (copies_padding<T>(s)) {
    const ConvGeometry padded = padded_geometry(s);
    T* copy = reinterpret_cast<T*>(workspace.data());
    copy_padded(pool, s, padded, x, copy);
    return small_dw(pool, padded, dw, copy, dy, workspace.subspan(static_cast<size_t>(padded_bytes(padded))));
  }
  GemmArgs<T> args;
  args.shape = dw_shape(s);
  args.a = lhs(dy, s.out_c, true, s.group_out);
  args.b = pointwise(s) ? rhs(x, s.in_c, false, s.group_in) : patches_operand(s, x, Operand<T>::Kind::image_k);
  args.c.data = dw;
  args.c.ld = args.shape.n;
  args.c.batch_stride = args.shape.m * args.shape.n;
  args.workspace = workspace;
  gemm(pool, args);
}

template int64_t conv2d_workspace<float>(ConvPass, const ConvGeometry&, int);
template int64_t conv2d_workspace<double>(ConvPass, const ConvGeometry&, int);
template void conv2d_forward(ThreadPool&, const ConvGeometry&, float*, const float*, const float*,
                             const Epilogue<float>&, std::span<std::byte>);
template void conv2d_forward(ThreadPool&, const ConvGeometry&, double*, const double*, const double*,
                             const Epilogue<double>&, std::span<std::byte>);
template void conv2d_dx(ThreadPool&, const ConvGeometry&, float*, const float*, const float*, std::span<std::byte>);
template void conv2d_dx(ThreadPool&, const ConvGeometry&, double*, const double*, const double*, std::span<std::byte>);
template void conv2d_dw(ThreadPool&, const ConvGeometry&, float*, const float*, const float*, std::span<std::byte>);
template void conv2d_dw(ThreadPool&, const ConvGeometry&, double*, const double*, const double*, std::span<std::byte>);

}  // namespace lathe::cpu
