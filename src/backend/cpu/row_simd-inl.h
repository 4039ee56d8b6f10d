// Passes over one row of f32 for kernels that normalise rows, compiled once per instruction set: include inside a
// foreach_target source. The end of a row that does not fill a vector is padded, so that rows of 10 cost one vector and
// not 10 scalars.
#if defined(LATHE_ROW_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef LATHE_ROW_SIMD_INL_H_
#undef LATHE_ROW_SIMD_INL_H_
#else
#define LATHE_ROW_SIMD_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>

#include "backend/cpu/simd_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lathe::cpu::HWY_NAMESPACE {

using RowTag = hn::ScalableTag<float>;
using RowVec = hn::Vec<RowTag>;

// Access to one vector of a row at position i.
struct WholeVector {
  int64_t i;
  HWY_INLINE RowVec load(const float* row, float = 0) const { return hn::LoadU(RowTag(), row + i); }
  HWY_INLINE void store(RowVec v, float* row) const { hn::StoreU(v, RowTag(), row + i); }
};

// The same for the last `count` values; lanes beyond them read as `fill`.
struct PartVector {
  int64_t i, count;
  HWY_INLINE RowVec load(const float* row, float fill = 0) const { return load_part(RowTag(), row + i, count, fill); }
  HWY_INLINE void store(RowVec v, float* row) const { store_part(v, RowTag(), row + i, count); }
};

template <class F>
HWY_INLINE void map_row(int64_t n, F&& f) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(RowTag()));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) f(WholeVector{i});
  if (i < n) f(PartVector{i, n - i});
}

// Sum over the row of f(access), which is 0 in lanes beyond the end. Blocks of 1024 in f32, their sums in f64; the
// order depends on n alone.
template <class F>
HWY_INLINE double sum_row(int64_t n, F&& f) {
  const RowTag d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += 1024) {
    const int64_t end = std::min<int64_t>(begin + 1024, n);
    RowVec s0 = hn::Zero(d), s1 = hn::Zero(d);
    int64_t i = begin;
    for (; i + 2 * lanes <= end; i += 2 * lanes) {
      s0 = hn::Add(s0, f(WholeVector{i}));
      s1 = hn::Add(s1, f(WholeVector{i + lanes}));
    }
    for (; i + lanes <= end; i += lanes) s0 = hn::Add(s0, f(WholeVector{i}));
    if (i < end) s1 = hn::Add(s1, f(PartVector{i, end - i}));
    total += static_cast<double>(hn::GetLane(hn::SumOfLanes(d, hn::Add(s0, s1))));
  }
  return total;
}

}  // namespace lathe::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
