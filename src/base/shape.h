// Shape: up to 8 dimensions, held inline; the element count is checked when the shape is made.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <vector>

#include "base/dtype.h"

namespace lathe {

using Ints = std::vector<int64_t>;  // sizes, axes, strides

class Shape {  // The sizes of a tensor's axes.
 public:
  static constexpr int kMaxDims = 8;  // more are refused

  Shape() = default;  // a scalar
  // Shape{2, 3}.
  Shape(std::initializer_list<int64_t> dims) : Shape(std::span<const int64_t>(dims.begin(), dims.size())) {}
  explicit Shape(std::span<const int64_t> dims);  // UserError: too many dims, negative, or overflowing
  explicit Shape(const Ints& dims) : Shape(std::span<const int64_t>(dims)) {}  // the same from a list

  int ndim() const { return ndim_; }                                               // number of axes
  int64_t operator[](int axis) const { return dims_[static_cast<size_t>(axis)]; }  // axis in [0, ndim)
  int64_t dim(int axis) const;              // axis may be negative; UserError when out of range
  int64_t numel() const { return numel_; }  // elements; 1 for a scalar
  std::span<const int64_t> dims() const { return {dims_.data(), static_cast<size_t>(ndim_)}; }  // the sizes
  const int64_t* begin() const { return dims_.data(); }                                         // of the sizes
  const int64_t* end() const { return dims_.data() + ndim_; }                                   // of the sizes
  Ints to_ints() const { return {begin(), end()}; }                                             // a copy of the sizes

  Shape with_dim(int axis, int64_t size) const;  // another size for one axis
  Ints strides() const;                          // row-major, in elements

  friend bool operator==(const Shape& a, const Shape& b);  // same sizes

 private:
  std::array<int64_t, kMaxDims> dims_{};
  int ndim_ = 0;
  int64_t numel_ = 1;
};

std::string to_string(const Shape&);  // "[2, 3]"

// Maps a possibly negative axis into [0, ndim); UserError names `what`.
int normalize_axis(int64_t axis, int ndim, const char* what);

struct TensorType {          // What a tensor is: element type and shape.
  DType dtype = DType::f32;  // of the elements
  Shape shape;               // row-major

  int64_t numel() const { return shape.numel(); }                   // elements
  int64_t bytes() const { return shape.numel() * size_of(dtype); }  // in memory
  friend bool operator==(const TensorType&, const TensorType&) = default;
};

std::string to_string(const TensorType&);  // "f32[2, 3]"

}  // namespace lathe
