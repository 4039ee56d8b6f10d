// The f64 product: a plain blocked loop that reads its operands element by element. For checks, not for speed.
#include <algorithm>

#include "backend/cpu/gemm/gemm_kernel.h"
#include "base/checked.h"

namespace lathe::cpu {

namespace {

constexpr int64_t kRows = 16, kCols = 64, kDepth = 64;

double element(const Operand<double>& op, int64_t r, int64_t p) {
  using Kind = Operand<double>::Kind;
  const ImageView& v = op.view;
  switch (op.kind) {
    case Kind::k_contiguous: return op.data[r * op.ld + p];
    case Kind::k_strided: return op.data[p * op.ld + r];
    case Kind::k_taps: {
      const int64_t tap = p / op.inner;
      return op.data[tap / op.taps_x * op.tap_y_stride + tap % op.taps_x * op.tap_x_stride + p % op.inner * op.ld + r];
    }
    case Kind::image_k: std::swap(r, p); [[fallthrough]];
    case Kind::image: break;
  }
  const int64_t tap = p / v.c, j = r % v.grid_w, i = r / v.grid_w % v.grid_h, n = r / v.grid_w / v.grid_h;
  const int64_t y = i * v.step_y + v.base_y + tap / v.taps_x * v.delta_y;
  const int64_t x = j * v.step_x + v.base_x + tap % v.taps_x * v.delta_x;
  if (y < 0 || y >= v.h || x < 0 || x >= v.w) return 0.0;
  return op.data[((n * v.h + y) * v.w + x) * v.pitch + p % v.c];
}

int64_t batch_offset(const GemmShape& s, int64_t b, int64_t stride, int64_t inner_stride) {
  return b / s.batch_inner * stride + b % s.batch_inner * inner_stride;
}

void store_row(const GemmArgs<double>& args, int64_t batch, int64_t i, int64_t j0, int64_t n, const double* sum) {
  const Output<double>& out = args.c;
  const Epilogue<double>& e = args.epilogue;
  int64_t offset = batch_offset(args.shape, batch, out.batch_stride, out.inner_stride) + j0;
  if (out.grid_w == 0) {
    offset += i * out.ld;
  } else {
    offset += i / out.grid_w / out.grid_h * out.image_stride + i / out.grid_w % out.grid_h * out.row_stride +
              i % out.grid_w * out.ld;
  }
  const int64_t row = batch * (e.batch_rows < 0 ? args.shape.m : e.batch_rows) + i, col = batch * e.batch_cols + j0;
  double* c = out.data + offset;
  for (int64_t j = 0; j < n; ++j) {
    double v = sum[j];
    if (e.bias_col) v += e.bias_col[col + j];
    if (e.bias_row) v += e.bias_row[row];
    if (e.residual) v += e.residual[offset + j];
    if (e.relu) v = v < 0 ? 0 : v;
    c[j] = v;
  }
  if (e.post) e.post(e.context, c, row, col, n);
}

}  // namespace

void gemm_f64(ThreadPool& pool, const GemmArgs<double>& args) {
  const GemmShape& s = args.shape;
  const int64_t rows = ceil_div(s.m, kRows), cols = ceil_div(s.n, kCols);
  pool.run(s.batch * rows * cols, [&](int64_t task) {
    const int64_t batch = task / (rows * cols), i0 = task / cols % rows * kRows, j0 = task % cols * kCols;
    const int64_t mb = std::min(kRows, s.m - i0), nb = std::min(kCols, s.n - j0);
    Operand<double> a = args.a, b = args.b;
    a.data += batch_offset(s, batch, a.batch_stride, a.inner_stride);
    b.data += batch_offset(s, batch, b.batch_stride, b.inner_stride);
    double c[kRows][kCols] = {};
    double packed[kDepth][kCols];
    for (int64_t p0 = 0; p0 < s.k; p0 += kDepth) {
      const int64_t depth = std::min(kDepth, s.k - p0);
      for (int64_t p = 0; p < depth; ++p)
        for (int64_t j = 0; j < nb; ++j) packed[p][j] = element(b, j0 + j, p0 + p);
      for (int64_t i = 0; i < mb; ++i) {
        for (int64_t p = 0; p < depth; ++p) {
          const double x = element(a, i0 + i, p0 + p);
          for (int64_t j = 0; j < nb; ++j) c[i][j] += x * packed[p][j];
        }
      }
    }
    for (int64_t i = 0; i < mb; ++i) store_row(args, batch, i0 + i, j0, nb, c[i]);
  });
}

}  // namespace lathe::cpu
