#include "backend/cpu/strided_copy.h"

#include <algorithm>
#include <cstring>

#include "base/checked.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kTaskElements = 32768;
constexpr int64_t kTile = 32;

}  // namespace

StridedCopy::StridedCopy(DType t, const Shape& box, const Ints& dst_strides, const Ints& src_strides)
    : element_(size_of(t)), numel_(box.numel()) {
  for (int d = 0; d < box.ndim(); ++d) {
    const Dim dim{box[d], dst_strides[static_cast<size_t>(d)], src_strides[static_cast<size_t>(d)]};
    if (dim.size == 1) continue;
    Dim* last = ndim_ > 0 ? &dims_[static_cast<size_t>(ndim_ - 1)] : nullptr;
    if (last && last->dst == dim.dst * dim.size && last->src == dim.src * dim.size)
      *last = {last->size * dim.size, dim.dst, dim.src};
    else
      dims_[static_cast<size_t>(ndim_++)] = dim;
  }
  if (ndim_ == 0) dims_[static_cast<size_t>(ndim_++)] = {numel_, 1, 1};
  const size_t last = static_cast<size_t>(ndim_ - 1);
  // The dimension along which the source is contiguous goes next to the last one, and both are walked by tiles.
  if (dims_[last].src != 1 && dims_[last].dst == 1) {
    for (size_t d = 0; d < last; ++d) {
      if (dims_[d].src != 1) continue;
      std::rotate(dims_.begin() + d, dims_.begin() + d + 1, dims_.begin() + last);
      transposes_ = true;
      break;
    }
  }
  outer_dims_ = ndim_ - (transposes_ ? 2 : 1);
  for (int d = 0; d < outer_dims_; ++d) outer_ *= dims_[static_cast<size_t>(d)].size;
}

void StridedCopy::offsets(int64_t n, int64_t* dst, int64_t* src) const {
  *dst = *src = 0;
  for (int d = outer_dims_ - 1; d >= 0; --d) {
    const Dim& dim = dims_[static_cast<size_t>(d)];
    *dst += n % dim.size * dim.dst;
    *src += n % dim.size * dim.src;
    n /= dim.size;
  }
}

template <class T>
void StridedCopy::rows(ThreadPool& pool, T* dst, const T* src) const {
  const Dim row = dims_[static_cast<size_t>(ndim_ - 1)];
  const int64_t pieces = ceil_div(row.size, kTaskElements), per_task = std::max<int64_t>(1, kTaskElements / row.size);
  pool.run_blocks(outer_ * pieces, per_task, [&](int64_t first, int64_t last) {
    for (int64_t u = first; u < last; ++u) {
      int64_t to, from;
      offsets(u / pieces, &to, &from);
      const int64_t begin = u % pieces * kTaskElements, n = std::min(kTaskElements, row.size - begin);
      T* y = dst + to + begin * row.dst;
      const T* x = src + from + begin * row.src;
      if (row.dst == 1 && row.src == 1) std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
      else
        for (int64_t i = 0; i < n; ++i) y[i * row.dst] = x[i * row.src];
    }
  });
}

template <class T>
void StridedCopy::tiles(ThreadPool& pool, T* dst, const T* src) const {
  const Dim a = dims_[static_cast<size_t>(ndim_ - 2)], b = dims_[static_cast<size_t>(ndim_ - 1)];  // a.src == 1, b.dst == 1
  const int64_t strips = ceil_div(a.size, kTile), per_task = std::max<int64_t>(1, kTaskElements / (kTile * b.size));
  pool.run_blocks(outer_ * strips, per_task, [&](int64_t first, int64_t last) {
    for (int64_t u = first; u < last; ++u) {
      int64_t to, from;
      offsets(u / strips, &to, &from);
      const int64_t i0 = u % strips * kTile, i1 = std::min(i0 + kTile, a.size);
      for (int64_t j0 = 0; j0 < b.size; j0 += kTile) {
        const int64_t j1 = std::min(j0 + kTile, b.size);
        for (int64_t i = i0; i < i1; ++i) {
          T* y = dst + to + i * a.dst;
          const T* x = src + from + i;
          for (int64_t j = j0; j < j1; ++j) y[j] = x[j * b.src];
        }
      }
    }
  });
}

template <class T>
void StridedCopy::run_typed(ThreadPool& pool, T* dst, const T* src) const {
  if (transposes_) tiles(pool, dst, src);
  else rows(pool, dst, src);
}

void StridedCopy::run(ThreadPool& pool, std::byte* dst, const std::byte* src) const {
  if (numel_ == 0) return;
  switch (element_) {
    case 1: run_typed(pool, reinterpret_cast<uint8_t*>(dst), reinterpret_cast<const uint8_t*>(src)); break;
    case 4: run_typed(pool, reinterpret_cast<uint32_t*>(dst), reinterpret_cast<const uint32_t*>(src)); break;
    default: run_typed(pool, reinterpret_cast<uint64_t*>(dst), reinterpret_cast<const uint64_t*>(src)); break;
  }
}

}  // namespace lathe::cpu
