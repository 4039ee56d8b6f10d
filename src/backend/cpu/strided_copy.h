// Copies a box of elements between two strided places: what transpose, slice, pad and concat do.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/shape.h"
#include "base/thread_pool.h"

namespace lathe::cpu {

class StridedCopy {
 public:
  // Strides in elements, one per dimension of `box`.
  StridedCopy(DType, const Shape& box, const Ints& dst_strides, const Ints& src_strides);
  void run(ThreadPool&, std::byte* dst, const std::byte* src) const;

 private:
  template <class T>
  void run_typed(ThreadPool&, T* dst, const T* src) const;
  template <class T>
  void rows(ThreadPool&, T* dst, const T* src) const;
  template <class T>
  void tiles(ThreadPool&, T* dst, const T* src) const;

  struct Dim {
    int64_t size, dst, src;
  };
  struct Walk;

  int64_t element_ = 4;
  int64_t numel_ = 0;
  int outer_dims_ = 0;  // dims_[0 .. outer_dims_) are walked one by one
  int64_t outer_ = 1;
  bool transposes_ =
      false;  // the inner two dimensions: source contiguous along the first, destination along the second
  std::array<Dim, Shape::kMaxDims + 2> dims_{};
  int ndim_ = 0;
};

}  // namespace lathe::cpu
