#include "backend/cpu/strided_copy.h"

#include <hwy/highway.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/checked.h"

// Vectors of 128 bits, on the lowest instruction set that is compiled in: wider ones gain nothing here.
HWY_BEFORE_NAMESPACE();
namespace lathe::cpu {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int64_t kTile = 32;

// buffer[i * kTile + j] = x[i + j * x_stride] for i, j < 4.
HWY_INLINE void transpose_4x4(uint32_t* HWY_RESTRICT buffer, const uint32_t* HWY_RESTRICT x, int64_t x_stride) {
  const hn::FixedTag<uint32_t, 4> d;
  const hn::FixedTag<uint64_t, 2> d2;
  const auto r0 = hn::LoadU(d, x), r1 = hn::LoadU(d, x + x_stride), r2 = hn::LoadU(d, x + 2 * x_stride),
             r3 = hn::LoadU(d, x + 3 * x_stride);
  const auto a = hn::BitCast(d2, hn::InterleaveLower(d, r0, r1)), b = hn::BitCast(d2, hn::InterleaveLower(d, r2, r3));
  const auto e = hn::BitCast(d2, hn::InterleaveUpper(d, r0, r1)), f = hn::BitCast(d2, hn::InterleaveUpper(d, r2, r3));
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d2, a, b)), d, buffer);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d2, a, b)), d, buffer + kTile);
  hn::Store(hn::BitCast(d, hn::InterleaveLower(d2, e, f)), d, buffer + 2 * kTile);
  hn::Store(hn::BitCast(d, hn::InterleaveUpper(d2, e, f)), d, buffer + 3 * kTile);
}

// The same for multiples of 4 rows and columns.
void transpose_blocks(uint32_t* buffer, const uint32_t* x, int64_t x_stride, int64_t rows, int64_t columns) {
  for (int64_t j = 0; j < columns; j += 4)
    for (int64_t i = 0; i < rows; i += 4) transpose_4x4(buffer + i * kTile + j, x + i + j * x_stride, x_stride);
}

}  // namespace
}  // namespace lathe::cpu
HWY_AFTER_NAMESPACE();

namespace lathe::cpu {
namespace {

constexpr int64_t kTaskElements = 32768;
constexpr int64_t kBlock = 256;  // a multiple of kTile

template <class T>
void copy_row(T* y, int64_t y_stride, const T* x, int64_t x_stride, int64_t n) {
  if (y_stride == 1 && x_stride == 1) {
    // A call to memcpy costs more than a short row.
    if (n <= 16) {
      for (int64_t i = 0; i < n; ++i) y[i] = x[i];
    } else {
      std::memcpy(y, x, static_cast<size_t>(n) * sizeof(T));
    }
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * y_stride] = x[i * x_stride];
  }
}

// y[i * y_stride + j] = x[i + j * x_stride] for a tile of rows x columns. Through a buffer, so that every cache line of
// both sides is touched once: rows a power of two apart share their cache sets.
template <class T>
void copy_tile(T* y, int64_t y_stride, const T* x, int64_t x_stride, int64_t rows, int64_t columns) {
  alignas(64) T buffer[kTile * kTile];
  int64_t whole_i = 0, whole_j = 0;
  if constexpr (std::is_same_v<T, uint32_t>) {
    whole_i = rows / 4 * 4;
    whole_j = columns / 4 * 4;
    transpose_blocks(buffer, x, x_stride, whole_i, whole_j);
  }
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t i = j < whole_j ? whole_i : 0; i < rows; ++i) buffer[i * kTile + j] = x[i + j * x_stride];
  for (int64_t i = 0; i < rows; ++i) {
    if (columns == kTile)
      std::memcpy(y + i * y_stride, buffer + i * kTile, kTile * sizeof(T));
    else
      copy_row(y + i * y_stride, 1, buffer + i * kTile, 1, columns);
  }
}

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

// Position in the dimensions that are walked one by one, with the offsets on both sides.
struct StridedCopy::Walk {
  Walk(const StridedCopy& copy, int64_t n) : c(copy) {
    for (int d = c.outer_dims_ - 1; d >= 0; --d) {
      const Dim& dim = c.dims_[static_cast<size_t>(d)];
      at[static_cast<size_t>(d)] = n % dim.size;
      dst += n % dim.size * dim.dst;
      src += n % dim.size * dim.src;
      n /= dim.size;
    }
  }
  void next() {
    for (int d = c.outer_dims_ - 1; d >= 0; --d) {
      const Dim& dim = c.dims_[static_cast<size_t>(d)];
      dst += dim.dst;
      src += dim.src;
      if (++at[static_cast<size_t>(d)] < dim.size) return;
      at[static_cast<size_t>(d)] = 0;
      dst -= dim.size * dim.dst;
      src -= dim.size * dim.src;
    }
  }
  const StridedCopy& c;
  std::array<int64_t, Shape::kMaxDims + 2> at{};
  int64_t dst = 0, src = 0;
};

template <class T>
void StridedCopy::rows(ThreadPool& pool, T* dst, const T* src) const {
  const Dim row = dims_[static_cast<size_t>(ndim_ - 1)];
  if (row.size <= kTaskElements) {
    pool.run_blocks(outer_, kTaskElements / row.size, [&](int64_t first, int64_t last) {
      Walk w(*this, first);
      for (int64_t u = first; u < last; ++u, w.next()) copy_row(dst + w.dst, row.dst, src + w.src, row.src, row.size);
    });
    return;
  }
  const int64_t pieces = ceil_div(row.size, kTaskElements);
  pool.run(outer_ * pieces, [&](int64_t u) {
    const Walk w(*this, u / pieces);
    const int64_t begin = u % pieces * kTaskElements;
    copy_row(dst + w.dst + begin * row.dst, row.dst, src + w.src + begin * row.src, row.src,
             std::min(kTaskElements, row.size - begin));
  });
}

template <class T>
void StridedCopy::tiles(ThreadPool& pool, T* dst, const T* src) const {
  const Dim a = dims_[static_cast<size_t>(ndim_ - 2)],
            b = dims_[static_cast<size_t>(ndim_ - 1)];  // a.src == 1, b.dst == 1
  // Blocks of tiles, so that a page of memory is left for good once it is left.
  const int64_t blocks_a = ceil_div(a.size, kBlock), blocks_b = ceil_div(b.size, kBlock);
  const int64_t per_task = std::max<int64_t>(1, kTaskElements / (std::min(kBlock, a.size) * std::min(kBlock, b.size)));
  pool.run_blocks(outer_ * blocks_a * blocks_b, per_task, [&](int64_t first, int64_t last) {
    for (int64_t u = first; u < last; ++u) {
      const Walk w(*this, u / (blocks_a * blocks_b));
      const int64_t i0 = u / blocks_b % blocks_a * kBlock, i1 = std::min(i0 + kBlock, a.size);
      const int64_t j0 = u % blocks_b * kBlock, j1 = std::min(j0 + kBlock, b.size);
      for (int64_t i = i0; i < i1; i += kTile)
        for (int64_t j = j0; j < j1; j += kTile)
          copy_tile(dst + w.dst + i * a.dst + j, a.dst, src + w.src + i + j * b.src, b.src, std::min(kTile, i1 - i),
                    std::min(kTile, j1 - j));
    }
  });
}

template <class T>
void StridedCopy::run_typed(ThreadPool& pool, T* dst, const T* src) const {
  if (transposes_)
    tiles(pool, dst, src);
  else
    rows(pool, dst, src);
}

void StridedCopy::run(ThreadPool& pool, std::byte* dst, const std::byte* src) const {
  if (numel_ == 0) return;
  switch (element_) {
    case 1: run_typed(pool, reinterpret_cast<uint8_t*>(dst), reinterpret_cast<const uint8_t*>(src)); break;
    case 2: run_typed(pool, reinterpret_cast<uint16_t*>(dst), reinterpret_cast<const uint16_t*>(src)); break;
    case 4: run_typed(pool, reinterpret_cast<uint32_t*>(dst), reinterpret_cast<const uint32_t*>(src)); break;
    default: run_typed(pool, reinterpret_cast<uint64_t*>(dst), reinterpret_cast<const uint64_t*>(src)); break;
  }
}

}  // namespace lathe::cpu
