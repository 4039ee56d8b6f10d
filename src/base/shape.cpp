#include "base/shape.h"

#include <algorithm>

#include "base/checked.h"

namespace lathe {

Shape::Shape(std::span<const int64_t> dims) {
  LATHE_USER_CHECK(dims.size() <= kMaxDims, "shape: expected at most {} dimensions, got {}", kMaxDims, dims.size());
  ndim_ = static_cast<int>(dims.size());
  int64_t product = 1;  // without the zeros: strides multiply the other dimensions of an empty tensor, too
  for (int i = 0; i < ndim_; ++i) {
    const int64_t d = dims[static_cast<size_t>(i)];
    LATHE_USER_CHECK(d >= 0, "shape: dimension {} is negative ({})", i, d);
    dims_[static_cast<size_t>(i)] = d;
    if (d > 0) product = checked_mul(product, d, "shape");
    numel_ *= d;
  }
  // Bytes of the widest element must be representable too.
  checked_mul(product, 8, "shape");
}

int64_t Shape::dim(int axis) const { return dims_[static_cast<size_t>(normalize_axis(axis, ndim_, "shape"))]; }

Shape Shape::with_dim(int axis, int64_t size) const {
  Ints d = to_ints();
  d[static_cast<size_t>(normalize_axis(axis, ndim_, "shape"))] = size;
  return Shape(d);
}

Ints Shape::strides() const {
  Ints s(static_cast<size_t>(ndim_));
  int64_t stride = 1;
  for (int i = ndim_ - 1; i >= 0; --i) {
    s[static_cast<size_t>(i)] = stride;
    stride *= dims_[static_cast<size_t>(i)];
  }
  return s;
}

bool operator==(const Shape& a, const Shape& b) { return std::ranges::equal(a.dims(), b.dims()); }

std::string to_string(const Shape& s) { return fmt::format("[{}]", fmt::join(s.begin(), s.end(), ", ")); }

int normalize_axis(int64_t axis, int ndim, const char* what) {
  LATHE_USER_CHECK(axis >= -ndim && axis < ndim, "{}: axis {} is out of range for {} dimensions", what, axis, ndim);
  return static_cast<int>(axis < 0 ? axis + ndim : axis);
}

std::string to_string(const TensorType& t) { return fmt::format("{}{}", to_string(t.dtype), to_string(t.shape)); }

}  // namespace lathe
