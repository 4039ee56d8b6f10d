// The instruction-set dependent half of gemm: packing into panels and the multiplication of packed blocks.
// A block of A is packed as panels of `mr` rows, [k][mr], the last one filled up with zeros; a block of B as panels of
// 3, 2 or 1 vectors of columns (see panel_vectors), [k][columns], the last vector filled up with zeros. A panel that
// starts at row or column x of its block lies at x * kc. A plain matrix can also be multiplied where it lies.
#pragma once

#include <cstdint>

#include "backend/cpu/gemm/gemm.h"

namespace lathe::cpu {

// Register tile and cache blocking of one instruction set.
struct Geometry {
  int64_t lanes;     // floats in a vector
  int64_t mr;        // rows of the register tile; its columns are 3 vectors
  int64_t kc;        // longest k block
  int64_t kc_alone;  // longest k that is not cut
  int64_t block;     // floats of a packed block that should stay in the second-level cache
  int64_t near_b;    // floats of B up to which it is not packed for few rows of A

  constexpr int64_t nr() const { return 3 * lanes; }
};

// Width in vectors of the next panel of B when `vectors` are left: 4 are two panels of 2, because a panel of 1 cannot
// keep the multipliers busy.
constexpr int64_t panel_vectors(int64_t vectors) { return vectors == 4 ? 2 : vectors < 3 ? vectors : 3; }

inline constexpr int64_t kMaxKc = 512;  // of all instruction sets

inline constexpr Geometry kGeometry128{
    .lanes = 4, .mr = 4, .kc = 272, .kc_alone = 272, .block = 64 << 10, .near_b = 128 << 10};
inline constexpr Geometry kGeometry256{
    .lanes = 8, .mr = 4, .kc = 272, .kc_alone = 272, .block = 64 << 10, .near_b = 128 << 10};
inline constexpr Geometry kGeometry512{
    .lanes = 16, .mr = 8, .kc = 272, .kc_alone = 400, .block = 96 << 10, .near_b = 600 << 10};

// A panel of an image can be a list of where its elements lie (see lists_runs) in place of the elements: runs one
// after the other, until their lengths make the k block.
template <int kRows>
struct RowRun {
  int64_t length;            // along k
  int64_t step;              // from one k to the next
  const float* rows[kRows];  // where each row's elements begin
};

// What the kernel itself does to finished elements. Rows and columns count from those of the block.
struct RowEpilogue {
  const float* bias_col = nullptr;
  const float* bias_row = nullptr;
  const float* residual = nullptr;  // residual[x - c_origin] belongs to the element at address x
  const float* c_origin = nullptr;
  bool relu = false;
};

// c[mb, nb] = (or +=) a[mb, kc] b[kc, nb].
struct Block {
  int64_t mb = 0, nb = 0, kc = 0;
  const float* a = nullptr;
  const float* b = nullptr;
  bool a_runs = false;         // a is lists of runs
  int64_t a_row = 0, a_k = 0;  // a not packed: element (i, p) at a[i * a_row + p * a_k]; both 0: packed
  bool a_far = false;          // a not packed, and larger than the near caches
  int64_t b_k = 0;             // b not packed: element (p, j) at b[p * b_k + j], nb in whole vectors; 0: packed
  float* c = nullptr;
  int64_t ldc = 0;
  float* const* c_rows = nullptr;  // if not null: the address of each row of c, instead of c and ldc
  bool add = false;
  const RowEpilogue* epilogue = nullptr;  // null: none
};

// Packs rows [r0, r0 + rn) and k range [p0, p0 + pn) of the operand, whose data is already at the right batch.
using Pack = void (*)(const Operand<float>&, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst);

struct PackFunctions {
  Pack a, b;
};

struct GemmKernels {
  Geometry geometry;
  Pack pack_a, pack_b;
  void (*multiply)(const Block&);
  // c[0, n) = (c if add) + partial[0] + partial[stride] + ..., in this order.
  void (*combine_row)(const float* partial, int64_t stride, int64_t count, int64_t n, bool add, float* c);
  void (*finish_row)(const RowEpilogue&, float* c, int64_t row, int64_t col, int64_t n);
};

// Of the active instruction set.
GemmKernels gemm_kernels();
PackFunctions pack_functions();

void gemm_f64(ThreadPool&, const GemmArgs<double>&);

}  // namespace lathe::cpu
