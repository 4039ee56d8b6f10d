#include "backend/cpu/gemm_kernel.h"

#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gemm_kernel.cpp"
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

struct TileArgs {
  int64_t kc, a_row, a_k, b_k;
  // a not packed: what to prefetch. The next rows if k is contiguous, else the next k.
  int64_t ahead, ahead_row;
};

// The register tile: MR rows of NV vectors, one chain of multiply-adds along k for each element. The pragmas make the
// arrays registers: without full unrolling they would live in memory.
enum class Lhs { packed, plain, plain_far };  // far: not in a near cache, so prefetched

template <int MR, int NV, Lhs kLhs>
void tile(const TileArgs& t, const float* HWY_RESTRICT a, const float* HWY_RESTRICT b, float* HWY_RESTRICT c,
          int64_t ldc, bool add) {
  const D d;
  V acc[MR * NV];
#pragma GCC unroll 32
  for (int i = 0; i < MR * NV; ++i) acc[i] = hn::Zero(d);
#pragma GCC unroll 32
  for (int i = 0; i < MR * NV; ++i) __builtin_prefetch(c + i / NV * ldc + i % NV * kLanes);
  const int64_t a_row = kLhs == Lhs::packed ? 1 : t.a_row, a_k = kLhs == Lhs::packed ? kMr : t.a_k, b_k = t.b_k;
  const float* ahead = a + t.ahead;
  for (int64_t p = 0; p < t.kc; ++p) {
    if constexpr (kLhs == Lhs::plain_far) {
      __builtin_prefetch(ahead + (p & 7) * t.ahead_row);
      ahead += a_k;
    }
    V bv[NV];
#pragma GCC unroll 4
    for (int j = 0; j < NV; ++j) bv[j] = hn::LoadU(d, b + j * kLanes);
#pragma GCC unroll 16
    for (int i = 0; i < MR; ++i) {
      const V av = hn::Set(d, a[i * a_row]);
#pragma GCC unroll 4
      for (int j = 0; j < NV; ++j) acc[i * NV + j] = hn::MulAdd(av, bv[j], acc[i * NV + j]);
    }
    a += a_k;
    b += b_k;
  }
  if (add) {
#pragma GCC unroll 32
    for (int i = 0; i < MR * NV; ++i) {
      float* dst = c + i / NV * ldc + i % NV * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(d, dst), acc[i]), d, dst);
    }
  } else {
#pragma GCC unroll 32
    for (int i = 0; i < MR * NV; ++i) hn::StoreU(acc[i], d, c + i / NV * ldc + i % NV * kLanes);
  }
}

using Tile = void (*)(const TileArgs&, const float*, const float*, float*, int64_t, bool);

template <Lhs kLhs, size_t... I>
constexpr auto tile_table(std::index_sequence<I...>) {
  struct Table {
    Tile f[sizeof...(I)];
  };
  return Table{{&tile<static_cast<int>(I) / kVectors + 1, static_cast<int>(I) % kVectors + 1, kLhs>...}};
}
using AllTiles = std::make_index_sequence<size_t{kMr} * kVectors>;
constexpr auto kPackedTiles = tile_table<Lhs::packed>(AllTiles());
constexpr auto kPlainTiles = tile_table<Lhs::plain>(AllTiles());
constexpr auto kFarTiles = tile_table<Lhs::plain_far>(AllTiles());

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
  TileArgs args{.kc = block.kc,
                .a_row = block.a_row,
                .a_k = block.a_k,
                .b_k = block.b_k,
                .ahead = kMr * block.a_row,
                .ahead_row = block.a_row};
  if (block.a_k > 1) args.ahead = 8 * block.a_k, args.ahead_row = 0;
  const Tile* tiles = packed_a ? kPackedTiles.f : block.a_far ? kFarTiles.f : kPlainTiles.f;
  const auto tile_at = [&](int64_t i, int64_t j, int64_t vectors) {
    const int64_t m = HWY_MIN(int64_t{kMr}, block.mb - i), n = HWY_MIN(vectors * kLanes, block.nb - j);
    const float* a = packed_a ? block.a + i * block.kc : block.a + i * block.a_row;
    const float* b = packed_b ? block.b + j * block.kc : block.b + j;
    if (packed_b) args.b_k = vectors * kLanes;
    const Tile f = tiles[(m - 1) * kVectors + vectors - 1];
    if (n == vectors * kLanes && !block.c_rows) {
      f(args, a, b, block.c + i * block.ldc + j, block.ldc, block.add);
    } else {
      f(args, a, b, scratch, kGeometry.nr(), false);
      for (int64_t r = 0; r < m; ++r) {
        float* c = (block.c_rows ? block.c_rows[i + r] : block.c + (i + r) * block.ldc) + j;
        store_row(scratch + r * kGeometry.nr(), n, block.add, c);
      }
    }
    if (!block.epilogue) return;
    for (int64_t r = 0; r < m; ++r) {
      float* c = (block.c_rows ? block.c_rows[i + r] : block.c + (i + r) * block.ldc) + j;
      finish_row(*block.epilogue, c, i + r, j, n);
    }
  };
  const auto vectors_at = [&](int64_t j) { return panel_vectors((block.nb - j + kLanes - 1) / kLanes); };
  if (block.nb * block.kc <= kFirstLevelFloats) {
    // All of b stays in the first-level cache: write c row by row.
    for (int64_t i = 0; i < block.mb; i += kMr)
      for (int64_t j = 0, v = 0; j < block.nb; j += v * kLanes) tile_at(i, j, v = vectors_at(j));
  } else {
    for (int64_t j = 0, v = 0; j < block.nb; j += v * kLanes) {
      v = vectors_at(j);
      for (int64_t i = 0; i < block.mb; i += kMr) tile_at(i, j, v);
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
