// Windows of the pooling kernels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "ops/pool.h"

namespace lathe::cpu {

// A half-open range of positions along one axis.
struct Range {
  int64_t begin, end;
};

// Input positions of window `o`, without the padding.
inline Range window_inputs(int64_t o, int64_t kernel, int64_t stride, int64_t pad, int64_t in) {
  const int64_t first = o * stride - pad;
  return {std::max<int64_t>(first, 0), std::min(first + kernel, in)};
}

// Windows that cover input position `i`.
inline Range covering_windows(int64_t i, int64_t kernel, int64_t stride, int64_t pad, int64_t out) {
  const int64_t last = (i + pad) / stride + 1, before = i + pad - kernel + 1;
  const int64_t first = before <= 0 ? 0 : (before + stride - 1) / stride;
  return {first, std::max(first, std::min(last, out))};
}

}  // namespace lathe::cpu
