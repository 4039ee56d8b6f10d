// Matrix multiply C[m, n] = A[m, k] B[k, n], batched, with an epilogue on finished tiles: the compute core of the cpu
// backend. Contract:
//  * The order in which one element of C is summed depends on k alone: k is cut into equal blocks (a function of k and
//    the instruction set), one chain of multiply-adds per block, block sums added in order. So the bits depend neither
//    on threads, nor on m, n, batch, nor on where the operands lie.
//  * No allocation: the caller gives gemm_workspace() bytes. That number depends on shape and threads only (not on the
//    instruction set), so that a memory plan holds on every machine.
// Operands are read through `Operand`, when they are packed: a plain matrix, or an image seen as its im2col matrix.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"

namespace lathe::cpu {

struct GemmShape {
  int64_t m = 0, n = 0, k = 0;
  int64_t batch = 1;
  int64_t batch_inner = 1;  // batch b lies at (b / batch_inner) * batch_stride + (b % batch_inner) * inner_stride
};

// An image [count, h, w, pitch] (of which c channels are used) seen as a matrix: one row per cell (n, i, j) of a
// grid, one column per (tap_y, tap_x, channel). The pixel of cell and tap is (i * step_y + base_y + tap_y * delta_y,
// j * step_x + base_x + tap_x * delta_x); outside the image it reads as zero.
struct ImageView {
  int64_t h = 0, w = 0, pitch = 0, c = 0;
  int64_t grid_h = 0, grid_w = 0;
  int64_t taps_y = 1, taps_x = 1;
  int64_t step_y = 1, step_x = 1;
  int64_t base_y = 0, base_x = 0;
  int64_t delta_y = 1, delta_x = 1;
};

// One side of the product. Element (r, p): r is the row of A or the column of B, p runs along k.
template <class T>
struct Operand {
  enum class Kind {
    k_contiguous,  // data[r * ld + p]
    k_strided,     // data[p * ld + r]
    k_taps,        // data[tap_y(p) * tap_y_stride + tap_x(p) * tap_x_stride + inner(p) * ld + r]
    image,         // r = grid cell, p = (tap, channel)
    image_k,       // r = (tap, channel), p = grid cell
  };
  Kind kind = Kind::k_contiguous;
  const T* data = nullptr;
  int64_t ld = 0;
  int64_t batch_stride = 0, inner_stride = 0;
  int64_t taps_x = 1, inner = 1, tap_y_stride = 0, tap_x_stride = 0;  // k_taps: p = (tap_y, tap_x, inner)
  ImageView view{};                                                   // image, image_k
};

// A[m, k] row-major with leading dimension ld, or stored as its transpose [k, m].
template <class T>
Operand<T> lhs(const T* data, int64_t ld, bool transposed = false, int64_t batch_stride = 0, int64_t inner_stride = 0) {
  using Kind = typename Operand<T>::Kind;
  Operand<T> op;
  op.kind = transposed ? Kind::k_strided : Kind::k_contiguous;
  op.data = data;
  op.ld = ld;
  op.batch_stride = batch_stride;
  op.inner_stride = inner_stride;
  return op;
}

// B[k, n] row-major with leading dimension ld, or stored as its transpose [n, k].
template <class T>
Operand<T> rhs(const T* data, int64_t ld, bool transposed = false, int64_t batch_stride = 0, int64_t inner_stride = 0) {
  return lhs(data, ld, !transposed, batch_stride, inner_stride);
}

// Where C goes. Row r of batch b starts at data + batch offset + r * ld; with grid_w > 0, row r is the cell (n, i, j)
// of a grid and starts at n * image_stride + i * row_stride + j * ld instead.
template <class T>
struct Output {
  T* data = nullptr;
  int64_t ld = 0;
  int64_t batch_stride = 0, inner_stride = 0;
  int64_t grid_h = 0, grid_w = 0, image_stride = 0, row_stride = 0;
};

// Applied to every element once it is fully summed, in this order: bias, residual, relu, post.
// Row and column seen here are batch * batch_rows + row and batch * batch_cols + column; batch_rows < 0 means m.
template <class T>
struct Epilogue {
  const T* bias_col = nullptr;  // one value per column
  const T* bias_row = nullptr;  // one value per row
  const T* residual = nullptr;  // laid out as C
  bool relu = false;
  void (*post)(void* context, T* c_row, int64_t row, int64_t col, int64_t n) = nullptr;  // a piece of one row of C
  void* context = nullptr;
  int64_t batch_rows = -1, batch_cols = 0;
};

template <class T>
struct GemmArgs {
  GemmShape shape;
  Operand<T> a, b;
  Output<T> c;
  Epilogue<T> epilogue;
  std::span<std::byte> workspace;  // at least gemm_workspace(shape, pool.threads()) bytes, aligned to 64
};

// Bytes of packing buffers for f32; f64 needs none.
int64_t gemm_workspace(const GemmShape&, int threads);

// T is float or double; double is a plain blocked loop. k == 0 gives zeros (then the epilogue).
template <class T>
void gemm(ThreadPool&, const GemmArgs<T>&);

}  // namespace lathe::cpu
