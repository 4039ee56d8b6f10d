// Windows that slide along one axis of an image: what convolution and pooling share. Window o and tap k meet at
// position o * stride - pad + k * dilation of x; positions outside of x are padding.
#pragma once

#include <algorithm>
#include <cstdint>

namespace lathe {

// Positions that a window reaches over, from its first tap to its last.
inline int64_t window_reach(int64_t kernel, int64_t dilation) { return (kernel - 1) * dilation + 1; }

struct WindowRange {   // Half open, along one axis.
  int64_t begin, end;  // positions or windows
};

struct WindowAxis {                // One axis.
  int64_t in = 1, out = 1;         // positions of x; windows
  int64_t kernel = 1, stride = 1;  // taps of a window; steps between windows
  int64_t pad = 0;                 // in front of x. That behind it only decides how many windows there are.
  int64_t dilation = 1;            // distance of taps

  int64_t at(int64_t window, int64_t tap) const { return window * stride - pad + tap * dilation; }  // position in x
  int64_t reach() const { return window_reach(kernel, dilation); }                                  // see there
  // Windows beside each other, without gaps or padding, that cover all of x.
  bool tiles() const { return kernel == stride && out * stride == in && pad == 0 && dilation == 1; }
  // Of taps without gaps (dilation 1): positions of a window, without the padding.
  WindowRange positions(int64_t window) const {
    const int64_t first = window * stride - pad;
    return {std::max<int64_t>(first, 0), std::min(first + kernel, in)};
  }
  // The same: windows that cover position i.
  WindowRange windows_over(int64_t i) const {
    const int64_t last = (i + pad) / stride + 1, before = i + pad - kernel + 1;
    const int64_t first = before <= 0 ? 0 : (before + stride - 1) / stride;
    return {first, std::max(first, std::min(last, out))};
  }
};

// Windows along an axis of `in` positions with padding before and after it; 0 where none fits. UserError that begins
// with `op` for numbers that overflow.
int64_t window_count(const char* op, int64_t in, int64_t kernel, int64_t stride, int64_t before, int64_t after,
                     int64_t dilation = 1);
// The axis with that many windows. UserError for sizes that make no sense, or where no window fits; `what` names the
// axis in it.
WindowAxis window_axis(const char* op, const char* what, int64_t in, int64_t kernel, int64_t stride, int64_t before,
                       int64_t after, int64_t dilation = 1);

}  // namespace lathe
