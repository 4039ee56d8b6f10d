#include "backend/cpu/gemm/gemm_kernel.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gemm/gemm_kernel.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

#if HWY_MAX_BYTES == 64
constexpr Geometry kGeometry = kGeometry512;
#elif HWY_MAX_BYTES == 32
constexpr Geometry kGeometry = kGeometry256;
#else
constexpr Geometry kGeometry = kGeometry128;
#endif
constexpr int kLanes = static_cast<int>(kGeometry.lanes);
constexpr int kMr = static_cast<int>(kGeometry.mr);
constexpr int kVectors = 3;
static_assert(kGeometry.nr() == kVectors * kLanes);

constexpr int64_t kFirstLevelFloats = 6 << 10;

// How the tile reads A: packed panels; rows where they lie, k contiguous (far: not in a near cache, so prefetched);
// columns where they lie, rows contiguous; or lists of runs.
enum class Lhs { packed, rows, rows_far, columns, runs };
enum class Rhs { packed, plain };

struct TileArgs {
  int64_t kc, a_stride, b_k;  // a_stride: between rows (Lhs::rows) or between k (Lhs::columns)
  bool add;                   // to what C holds
  int64_t last;               // columns of the last vector that belong to C
};

constexpr int64_t kAhead = 8;           // k of columns prefetched ahead
constexpr int64_t kPrefetchFrom = 100;  // kc from which C is prefetched while the sums run

// The first n lanes of a vector, where the memory behind them must not be touched.
#if HWY_MAX_BYTES >= 32
using Part = hn::Mask<D>;
HWY_INLINE Part first_lanes(int64_t n) { return hn::FirstN(D(), static_cast<size_t>(n)); }
HWY_INLINE V load_part(Part part, const float* src) { return hn::MaskedLoad(part, D(), src); }
HWY_INLINE void store_part(V v, Part part, float* dst) { hn::BlendedStore(v, part, D(), dst); }
#else  // masked memory accesses are whole ones here
using Part = int64_t;
Part first_lanes(int64_t n) { return n; }
V load_part(Part part, const float* src) {
  HWY_ALIGN float lanes[kLanes] = {};
  for (int64_t j = 0; j < part; ++j) lanes[j] = src[j];
  return hn::Load(D(), lanes);
}
void store_part(V v, Part part, float* dst) {
  HWY_ALIGN float lanes[kLanes];
  hn::Store(v, D(), lanes);
  for (int64_t j = 0; j < part; ++j) dst[j] = lanes[j];
}
#endif

// acc[i, j] += a(i) * b[j], one k. The pragmas make the arrays registers: without full unrolling they would live in
// memory.
template <int MR, int NV, class A>
HWY_INLINE void multiply_add(const A& a, const float* HWY_RESTRICT b, V (&acc)[MR * NV]) {
  const D d;
  V bv[NV];
#pragma GCC unroll 4
  for (int j = 0; j < NV; ++j) bv[j] = hn::LoadU(d, b + j * kLanes);
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i) {
    const V av = hn::Set(d, a(i));
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) acc[i * NV + j] = hn::MulAdd(av, bv[j], acc[i * NV + j]);
  }
}

// The register tile: MR rows of NV vectors, one chain of multiply-adds along k for each element.
template <int MR, int NV, Lhs kLhs, Rhs kRhs>
void tile(const TileArgs& t, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
          int64_t ldc) {
  const D d;
  constexpr bool kRows = kLhs == Lhs::rows || kLhs == Lhs::rows_far;
  const int64_t a_row = kRows ? t.a_stride : 1;
  const int64_t a_k = kRows ? 1 : kLhs == Lhs::packed ? kMr : t.a_stride;
  const int64_t b_k = kRhs == Rhs::packed ? NV * kLanes : t.b_k;
  V acc[MR * NV];
#pragma GCC unroll 32
  for (int i = 0; i < MR * NV; ++i) acc[i] = hn::Zero(d);
  if (t.kc >= kPrefetchFrom) {
    const float* row = c;
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i, row += ldc) {
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) __builtin_prefetch(row + j * kLanes, 0, 2);
    }
  }
  if constexpr (kLhs == Lhs::runs) {
    const auto* run = reinterpret_cast<const RowRun<kMr>*>(a);
    for (int64_t left = t.kc; left > 0; left -= run->length, ++run) {
      const float* rows[MR];
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i) rows[i] = run->rows[i];
      const int64_t step = run->step, end = run->length * step;
      for (int64_t k = 0; k != end; k += step, b += b_k)
        multiply_add<MR, NV>([&](int i) HWY_ATTR { return rows[i][k]; }, b, acc);
    }
  } else {
    const float* ahead = a + (kLhs == Lhs::rows_far ? MR * a_row : kAhead * a_k);
    // The rows from kMr on have a pointer of their own: offsets of so many rows would not fit the registers.
    const float* tall = a + kMr * a_row;
    if constexpr (MR > kMr) asm volatile("" : "+r"(tall));
    for (int64_t p = 0; p < t.kc; ++p, a += a_k, tall += a_k, b += b_k) {
      // Each line of the next rows is asked for about twice while k passes it.
      if constexpr (kLhs == Lhs::rows_far) __builtin_prefetch(ahead + p % MR * a_row + p);
      if constexpr (kLhs == Lhs::columns) __builtin_prefetch(ahead + p * a_k);
      multiply_add<MR, NV>([&](int i) HWY_ATTR { return i < kMr ? a[i * a_row] : tall[(i - kMr) * a_row]; }, b, acc);
    }
  }
  // Addresses are recomputed: kept from the prefetches above, they would not fit the registers.
  float* row = c;
  asm volatile("" : "+r"(row), "+r"(ldc));
  const bool add = t.add;
  if (t.last == kLanes) {
    if (add) {
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i, row += ldc) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j)
          hn::StoreU(hn::Add(hn::LoadU(d, row + j * kLanes), acc[i * NV + j]), d, row + j * kLanes);
      }
    } else {
#pragma GCC unroll 16
      for (int i = 0; i < MR; ++i, row += ldc) {
#pragma GCC unroll 4
        for (int j = 0; j < NV; ++j) hn::StoreU(acc[i * NV + j], d, row + j * kLanes);
      }
    }
    return;
  }
  const Part part = first_lanes(t.last);
#pragma GCC unroll 16
  for (int i = 0; i < MR; ++i, row += ldc) {
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) {
      V v = acc[i * NV + j];
      float* dst = row + j * kLanes;
      if (j + 1 < NV) {
        hn::StoreU(add ? hn::Add(hn::LoadU(d, dst), v) : v, d, dst);
      } else {
        if (add) v = hn::Add(load_part(part, dst), v);
        store_part(v, part, dst);
      }
    }
  }
}

using Tile = void (*)(const TileArgs&, const float*, const float*, float*, int64_t);

// Tiles by height and vectors. A panel of one vector also has tiles of twice kMr rows: lower ones would wait for the
// multiply-adds before.
struct TileTable {
  Tile f[kMr][kVectors];
  Tile tall;  // null for panels of A: they are lower
};

template <Lhs kLhs, Rhs kRhs, size_t... I>
constexpr TileTable tile_table(std::index_sequence<I...>) {
  TileTable table{{{&tile<I + 1, 1, kLhs, kRhs>, &tile<I + 1, 2, kLhs, kRhs>, &tile<I + 1, 3, kLhs, kRhs>}...},
                  nullptr};
  if constexpr (kLhs != Lhs::packed && kLhs != Lhs::runs) table.tall = &tile<2 * kMr, 1, kLhs, kRhs>;
  return table;
}
using Heights = std::make_index_sequence<kMr>;
template <Rhs kRhs>
constexpr TileTable kTiles[] = {tile_table<Lhs::packed, kRhs>(Heights()), tile_table<Lhs::rows, kRhs>(Heights()),
                                tile_table<Lhs::rows_far, kRhs>(Heights()), tile_table<Lhs::columns, kRhs>(Heights()),
                                tile_table<Lhs::runs, kRhs>(Heights())};

void store_row(const float* HWY_RESTRICT src, int64_t n, bool add, float* HWY_RESTRICT c) {
  const D d;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    const V v = hn::LoadU(d, src + j);
    hn::StoreU(add ? hn::Add(hn::LoadU(d, c + j), v) : v, d, c + j);
  }
  for (; j < n; ++j) c[j] = add ? c[j] + src[j] : src[j];
}

// c = c + sum, in the order of the partial sums.
void combine_row(const float* partial, int64_t stride, int64_t count, int64_t n, bool add, float* HWY_RESTRICT c) {
  const D d;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    V sum = hn::LoadU(d, partial + j);
    if (add) sum = hn::Add(hn::LoadU(d, c + j), sum);
    for (int64_t s = 1; s < count; ++s) sum = hn::Add(sum, hn::LoadU(d, partial + s * stride + j));
    hn::StoreU(sum, d, c + j);
  }
  for (; j < n; ++j) {
    float sum = add ? c[j] + partial[j] : partial[j];
    for (int64_t s = 1; s < count; ++s) sum += partial[s * stride + j];
    c[j] = sum;
  }
}

void finish_row(const RowEpilogue& e, float* c, int64_t row, int64_t col, int64_t n) {
  const D d;
  const float* bias = e.bias_col ? e.bias_col + col : nullptr;
  const float* residual = e.residual ? e.residual + (c - e.c_origin) : nullptr;
  const float row_bias = e.bias_row ? e.bias_row[row] : 0.0f;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) {
    V v = hn::LoadU(d, c + j);
    if (bias) v = hn::Add(v, hn::LoadU(d, bias + j));
    if (e.bias_row) v = hn::Add(v, hn::Set(d, row_bias));
    if (residual) v = hn::Add(v, hn::LoadU(d, residual + j));
    if (e.relu) v = hn::Max(hn::Zero(d), v);
    hn::StoreU(v, d, c + j);
  }
  for (; j < n; ++j) {
    float v = c[j];
    if (bias) v += bias[j];
    if (e.bias_row) v += row_bias;
    if (residual) v += residual[j];
    if (e.relu) v = v < 0.0f ? 0.0f : v;
    c[j] = v;
  }
}

void multiply(const Block& block) {
  HWY_ALIGN float scratch[kMr * kVectors * kLanes];
  const bool packed_a = block.a_row == 0, packed_b = block.b_k == 0;
  const bool columns = block.a_row == 1 && block.a_k != 1;
  const Lhs lhs_kind = block.a_runs  ? Lhs::runs
                       : packed_a    ? Lhs::packed
                       : columns     ? Lhs::columns
                       : block.a_far ? Lhs::rows_far
                                     : Lhs::rows;
  const TileTable& tiles = (packed_b ? kTiles<Rhs::packed> : kTiles<Rhs::plain>)[static_cast<int>(lhs_kind)];
  TileArgs args{.kc = block.kc,
                .a_stride = columns ? block.a_k : block.a_row,
                .b_k = block.b_k,
                .add = block.add,
                .last = kLanes};
  // Rows of the next tile at row i; the last two are made equal, for very low ones waste time.
  const auto height_at = [&](int64_t i) {
    const int64_t left = block.mb - i;
    return left <= kMr ? left : packed_a || left >= 2 * kMr ? kMr : (left + 1) / 2;
  };
  const auto tile_at = [&](int64_t i, int64_t m, int64_t j, int64_t vectors) {
    const int64_t n = HWY_MIN(vectors * kLanes, block.nb - j);
    const float* a = packed_a ? block.a + i * block.kc : block.a + i * block.a_row;
    const float* b = packed_b ? block.b + j * block.kc : block.b + j;
    const Tile f = m > kMr ? tiles.tall : tiles.f[m - 1][vectors - 1];
    if (!block.c_rows) {
      args.last = n - (vectors - 1) * kLanes;
      f(args, a, b, block.c + i * block.ldc + j, block.ldc);
    } else {
      TileArgs whole = args;
      whole.add = false;
      f(whole, a, b, scratch, kGeometry.nr());
      for (int64_t r = 0; r < m; ++r) store_row(scratch + r * kGeometry.nr(), n, block.add, block.c_rows[i + r] + j);
    }
    for (int64_t r = 0; block.epilogue && r < m; ++r) {
      float* c = (block.c_rows ? block.c_rows[i + r] : block.c + (i + r) * block.ldc) + j;
      finish_row(*block.epilogue, c, i + r, j, n);
    }
  };
  const auto vectors_at = [&](int64_t j) { return panel_vectors((block.nb - j + kLanes - 1) / kLanes); };
  if (block.nb * block.kc <= kFirstLevelFloats && block.nb > kLanes) {
    // All of b stays in the first-level cache: write c row by row.
    for (int64_t i = 0, m = 0; i < block.mb; i += m) {
      m = height_at(i);
      for (int64_t j = 0, v = 0; j < block.nb; j += v * kLanes) tile_at(i, m, j, v = vectors_at(j));
    }
  } else {
    for (int64_t j = 0, v = 0; j < block.nb; j += v * kLanes) {
      v = vectors_at(j);
      const bool tall = v == 1 && tiles.tall && !block.c_rows;
      for (int64_t i = 0, m = 0; i < block.mb; i += m) {
        m = tall && block.mb - i >= 2 * kMr ? 2 * kMr : height_at(i);
        tile_at(i, m, j, v);
      }
    }
  }
}

GemmKernels kernels() {
  return {.geometry = kGeometry,
          .pack_a = nullptr,
          .pack_b = nullptr,
          .multiply = &multiply,
          .combine_row = &combine_row,
          .finish_row = &finish_row};
}

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {

HWY_EXPORT(kernels);

GemmKernels gemm_kernels() {
  GemmKernels k = HWY_DYNAMIC_DISPATCH(kernels)();
  const PackFunctions pack = pack_functions();
  k.pack_a = pack.a;
  k.pack_b = pack.b;
  return k;
}

}  // namespace lathe::cpu
#endif
