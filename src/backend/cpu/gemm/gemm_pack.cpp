// Packing of operands into panels; see gemm_kernel.h for the layout.
#include <cstring>

#include "backend/cpu/gemm/gemm_image.h"
#include "backend/cpu/gemm/gemm_kernel.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "backend/cpu/gemm/gemm_pack.cpp"
#include <hwy/foreach_target.h>  // compiles this file once per instruction set
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(D()));
constexpr int kMr = HWY_MAX_BYTES == 64 ? static_cast<int>(kGeometry512.mr) : static_cast<int>(kGeometry256.mr);
static_assert(kGeometry256.mr == kGeometry128.mr);
using DA = hn::CappedTag<float, kMr>;

// Four consecutive floats of rows[0], rows[4], rows[8], ..., one 128-bit block each.
template <class DV>
HWY_INLINE hn::Vec<DV> load_blocks(DV d, const float* const* rows, int64_t p) {
  if constexpr (hn::MaxLanes(DV()) == 4) {
    return hn::LoadU(d, rows[0] + p);
  } else {
    const hn::Half<DV> half;
    return hn::Combine(d, load_blocks(half, rows + hn::MaxLanes(half), p), load_blocks(half, rows, p));
  }
}

// dst[p][i] = rows[i][p] for p < n. G vectors of DV make the panel's width. `ahead` is the distance in floats to the
// rows that come next, to prefetch them; 0: unknown.
template <class DV, int G>
void transpose_rows(const float* const* rows, int64_t n, int64_t ahead, float* HWY_RESTRICT dst) {
  const DV d;
  constexpr int kStep = static_cast<int>(hn::MaxLanes(DV()));
  constexpr int kWidth = G * kStep;
  // One vector of rows at a time: so many lines stay in the first-level cache even when all rows fall into one set.
  for (int g = 0; g < G; ++g, rows += kStep) {
    float* out = dst + g * kStep;
    int64_t p = 0;
    for (; p + 4 <= n; p += 4, out += 4 * kWidth) {
      if (ahead != 0) {
#pragma GCC unroll 4
        for (int i = 0; i < kStep / 4; ++i) __builtin_prefetch(rows[p % 16 / 4 + 4 * i] + ahead + p);
      }
      const auto v0 = load_blocks(d, rows, p), v1 = load_blocks(d, rows + 1, p);
      const auto v2 = load_blocks(d, rows + 2, p), v3 = load_blocks(d, rows + 3, p);
      const auto even_low = hn::InterleaveLower(d, v0, v2), odd_low = hn::InterleaveLower(d, v1, v3);
      const auto even_high = hn::InterleaveUpper(d, v0, v2), odd_high = hn::InterleaveUpper(d, v1, v3);
      hn::Store(hn::InterleaveLower(d, even_low, odd_low), d, out);
      hn::Store(hn::InterleaveUpper(d, even_low, odd_low), d, out + kWidth);
      hn::Store(hn::InterleaveLower(d, even_high, odd_high), d, out + 2 * kWidth);
      hn::Store(hn::InterleaveUpper(d, even_high, odd_high), d, out + 3 * kWidth);
    }
    for (; p < n; ++p, out += kWidth)
      for (int i = 0; i < kStep; ++i) out[i] = rows[i][p];
  }
}

HWY_INLINE void copy(const float* HWY_RESTRICT src, int64_t n, float* HWY_RESTRICT dst) {
  const D d;
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes) hn::StoreU(hn::LoadU(d, src + j), d, dst + j);
  for (; j < n; ++j) dst[j] = src[j];
}

HWY_INLINE void zero(int64_t n, float* dst) {
  for (int64_t j = 0; j < n; ++j) dst[j] = 0.0f;
}

// dst[p][i] = src[p * ld + i] for i < rn, then zeros up to the width.
template <class DV, int G>
void copy_rows(const float* HWY_RESTRICT src, int64_t ld, int64_t rn, int64_t n, float* HWY_RESTRICT dst) {
  const DV d;
  constexpr int kStep = static_cast<int>(hn::MaxLanes(DV()));
  constexpr int kWidth = G * kStep;
  if (rn == kWidth) {
    for (int64_t p = 0; p < n; ++p, src += ld, dst += kWidth) {
#pragma GCC unroll 3
      for (int g = 0; g < G; ++g) hn::Store(hn::LoadU(d, src + g * kStep), d, dst + g * kStep);
    }
    return;
  }
  for (int64_t p = 0; p < n; ++p, src += ld, dst += kWidth) {
    copy(src, rn, dst);
    zero(kWidth - rn, dst + rn);
  }
}

// As copy_rows, for `panels` full panels side by side. Rows lie far apart, where neither the prefetcher nor the
// address translation follows: so each is read in one go and asked for some rows ahead.
template <class DV, int G>
void copy_rows_of_panels(const float* HWY_RESTRICT src, int64_t ld, int64_t panels, int64_t n,
                         float* HWY_RESTRICT dst) {
  const DV d;
  constexpr int kStep = static_cast<int>(hn::MaxLanes(DV()));
  constexpr int kWidth = G * kStep;
  constexpr int kAhead = 8;
  for (int64_t p = 0; p < n; ++p, src += ld, dst += kWidth) {
    const float* ahead = src + HWY_MIN(int64_t{kAhead}, n - 1 - p) * ld;
    for (int64_t i = 0; i < panels * kWidth; i += 16) __builtin_prefetch(ahead + i);
    float* out = dst;
    const float* in = src;
    for (int64_t i = 0; i < panels; ++i, in += kWidth, out += kWidth * n) {
#pragma GCC unroll 3
      for (int g = 0; g < G; ++g) hn::Store(hn::LoadU(d, in + g * kStep), d, out + g * kStep);
    }
  }
}

template <class DV, int G>
void pack_taps(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* HWY_RESTRICT dst) {
  constexpr int kWidth = G * static_cast<int>(hn::MaxLanes(DV()));
  for (int64_t p = p0; p < p0 + pn;) {
    const TapPosition at(p, op.taps_x, op.inner);
    const int64_t run = HWY_MIN(op.inner - at.inner, p0 + pn - p);
    const float* src = op.data + at.y * op.tap_y_stride + at.x * op.tap_x_stride + at.inner * op.ld + r0;
    copy_rows<DV, G>(src, op.ld, rn, run, dst);
    dst += run * kWidth;
    p += run;
  }
}

// Rows are cells. Each tap is a run of channels in every row's pixel; where all pixels of a tap row lie inside the
// image in x, the run continues over its taps.
template <class DV, int G>
void pack_image(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* HWY_RESTRICT dst) {
  constexpr int kWidth = G * static_cast<int>(hn::MaxLanes(DV()));
  const ImageView& v = op.view;
  struct Cell {
    const float* image;
    int64_t y, x;
  };
  Cell cells[kWidth];
  CellWalk walk(op, r0);
  bool whole_rows = taps_touch(v);
  for (int64_t i = 0; i < rn; ++i, walk.advance()) {
    cells[i] = {walk.image(), walk.y(), walk.x()};
    whole_rows = whole_rows && cells[i].x >= 0 && cells[i].x + v.taps_x <= v.w;
  }
  const float* rows[kWidth];
  for (int64_t i = rn; i < kWidth; ++i) rows[i] = kZeros;
  for (int64_t p = p0; p < p0 + pn;) {
    const TapPosition at(p, v.taps_x, v.c);
    const int64_t run = HWY_MIN((whole_rows ? (v.taps_x - at.x) * v.c : v.c) - at.inner, p0 + pn - p);
    for (int64_t i = 0; i < rn; ++i) {
      const int64_t y = cells[i].y + at.y * v.delta_y, x = cells[i].x + at.x * v.delta_x;
      const bool in = inside(y, v.h) && inside(x, v.w);
      rows[i] = in ? cells[i].image + (y * v.w + x) * v.pitch + at.inner : kZeros;
    }
    transpose_rows<DV, G>(rows, run, 0, dst);
    dst += run * kWidth;
    p += run;
  }
}

// dst[i * dst_step + j] = src[i * src_step + j] for i < n, j < size.
void copy_strided(const float* HWY_RESTRICT src, int64_t src_step, int64_t size, int64_t n, int64_t dst_step,
                  float* HWY_RESTRICT dst) {
  const D d;
  if (size == 3 * kLanes) {
    for (int64_t i = 0; i < n; ++i, src += src_step, dst += dst_step) {
#pragma GCC unroll 3
      for (int g = 0; g < 3; ++g) hn::StoreU(hn::LoadU(d, src + g * kLanes), d, dst + g * kLanes);
    }
    return;
  }
  for (int64_t i = 0; i < n; ++i, src += src_step, dst += dst_step) copy(src, size, dst);
}

// Rows are (tap, channel), k runs over the cells. The columns of the panel are pieces of memory, of one tap row each
// where its taps touch, else of one tap; a piece is copied for a whole row of cells at a time.
template <class DV, int G>
void pack_image_k(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* HWY_RESTRICT dst) {
  constexpr int64_t kWidth = G * static_cast<int>(hn::MaxLanes(DV()));
  const ImageView& v = op.view;
  const bool touch = taps_touch(v);
  if (rn < kWidth)
    for (int64_t p = 0; p < pn; ++p) zero(kWidth - rn, dst + p * kWidth + rn);
  for (int64_t r = r0, size = 0; r < r0 + rn; r += size, dst += size) {
    const TapPosition at(r, v.taps_x, v.c);
    size = HWY_MIN((touch ? (v.taps_x - at.x) * v.c : v.c) - at.inner, r0 + rn - r);
    const int64_t taps = (at.inner + size + v.c - 1) / v.c;
    // Cells first <= j < last of a row have all taps of the piece inside the image.
    const int64_t origin = v.base_x + at.x * v.delta_x;
    const int64_t inside_first = origin >= 0 ? 0 : (-origin + v.step_x - 1) / v.step_x;
    const int64_t inside_last = origin + taps > v.w ? 0 : (v.w - taps - origin) / v.step_x + 1;
    CellWalk cell(op, p0);
    for (int64_t p = 0, count = 0; p < pn; p += count, cell.advance(count)) {
      const int64_t begin = cell.column();
      count = HWY_MIN(v.grid_w - begin, pn - p);
      float* out = dst + p * kWidth;
      const int64_t y = cell.y() + at.y * v.delta_y;
      if (!inside(y, v.h)) {
        for (int64_t i = 0; i < count; ++i) zero(size, out + i * kWidth);
        continue;
      }
      const float* src = cell.image() + (y * v.w + origin) * v.pitch + at.inner;  // of cell j = 0
      const int64_t step = v.step_x * v.pitch;
      const int64_t first = HWY_MIN(HWY_MAX(inside_first, begin), begin + count);
      const int64_t last = HWY_MAX(HWY_MIN(inside_last, begin + count), first);
      copy_strided(src + first * step, step, size, last - first, kWidth, out + (first - begin) * kWidth);
      for (int64_t j = begin; j < begin + count; ++j) {
        if (j == first) j = last;
        if (j == begin + count) break;
        // Tap by tap; only the first one can start inside a pixel.
        float* column = out + (j - begin) * kWidth;
        for (int64_t t = 0, done = 0, part = 0; done < size; ++t, done += part) {
          part = HWY_MIN(v.c - (t == 0 ? at.inner : 0), size - done);
          if (inside(origin + j * v.step_x + t, v.w))
            copy(src + j * step + done, part, column + done);
          else
            zero(part, column + done);
        }
      }
    }
  }
}

template <class DV, int G>
void pack_panel(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  constexpr int kWidth = G * static_cast<int>(hn::MaxLanes(DV()));
  using Kind = Operand<float>::Kind;
  switch (op.kind) {
    case Kind::k_contiguous: {
      const float* rows[kWidth];
      for (int64_t i = 0; i < kWidth; ++i) rows[i] = i < rn ? op.data + (r0 + i) * op.ld + p0 : kZeros;
      transpose_rows<DV, G>(rows, pn, static_cast<int64_t>(hn::MaxLanes(DV())) * op.ld, dst);
      return;
    }
    case Kind::k_strided: copy_rows<DV, G>(op.data + p0 * op.ld + r0, op.ld, rn, pn, dst); return;
    case Kind::k_taps: pack_taps<DV, G>(op, r0, rn, p0, pn, dst); return;
    case Kind::image: pack_image<DV, G>(op, r0, rn, p0, pn, dst); return;
    case Kind::image_k: pack_image_k<DV, G>(op, r0, rn, p0, pn, dst); return;
  }
}

// Packs groups of full panels of a strided matrix; returns the rows done. About 768 bytes of a row at a time for B;
// less for A, whose narrow panels would otherwise be written to more lines of one cache set than it has ways.
template <class DV, int G>
int64_t pack_strided(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  constexpr int64_t kWidth = G * static_cast<int>(hn::MaxLanes(DV()));
  constexpr int64_t kGroup = G == 1 ? 8 : 4;
  if (op.kind != Operand<float>::Kind::k_strided) return 0;
  const int64_t panels = rn / kWidth;
  for (int64_t i = 0; i < panels; i += kGroup)
    copy_rows_of_panels<DV, G>(op.data + p0 * op.ld + r0 + i * kWidth, op.ld, HWY_MIN(kGroup, panels - i), pn,
                               dst + i * kWidth * pn);
  return panels * kWidth;
}

void pack_a(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  for (int64_t i = pack_strided<DA, 1>(op, r0, rn, p0, pn, dst); i < rn; i += kMr)
    pack_panel<DA, 1>(op, r0 + i, HWY_MIN(int64_t{kMr}, rn - i), p0, pn, dst + i * pn);
}

void pack_b(const Operand<float>& op, int64_t r0, int64_t rn, int64_t p0, int64_t pn, float* dst) {
  // The panels of three vectors; what panel_vectors cuts differently at the end is left to the loop.
  const int64_t vectors_all = (rn + kLanes - 1) / kLanes;
  const int64_t full = (vectors_all % 3 == 1 ? HWY_MAX(int64_t{0}, vectors_all - 4) : rn / kLanes) * kLanes;
  for (int64_t j = pack_strided<D, 3>(op, r0, full, p0, pn, dst), n = 0; j < rn; j += n) {
    const int64_t vectors = panel_vectors((rn - j + kLanes - 1) / kLanes);
    n = HWY_MIN(vectors * kLanes, rn - j);
    if (vectors == 3)
      pack_panel<D, 3>(op, r0 + j, n, p0, pn, dst + j * pn);
    else if (vectors == 2)
      pack_panel<D, 2>(op, r0 + j, n, p0, pn, dst + j * pn);
    else
      pack_panel<D, 1>(op, r0 + j, n, p0, pn, dst + j * pn);
  }
}

PackFunctions functions() { return {&pack_a, &pack_b}; }

}  // namespace
}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lathe::cpu {

HWY_EXPORT(functions);
PackFunctions pack_functions() { return HWY_DYNAMIC_DISPATCH(functions)(); }

}  // namespace lathe::cpu
#endif
