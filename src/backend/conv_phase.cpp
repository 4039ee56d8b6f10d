#include "backend/conv_phase.h"

#include <numeric>

#include "base/checked.h"

namespace lathe {

ConvPhase conv_phase(int64_t phase, int64_t size, int64_t stride, int64_t pad, int64_t kernel, int64_t dilation) {
  ConvPhase result;
  result.size = size > phase ? ceil_div(size - phase, stride) : 0;
  const int64_t common = std::gcd(dilation, stride);
  result.step = -(stride / common);
  result.delta = dilation / common;
  for (int64_t k = kernel - 1; k >= 0; --k) {
    const int64_t at = phase + pad - k * dilation;
    if (at % stride != 0) continue;
    if (result.taps == 0) {
      result.first = k;
      result.base = at / stride;
    }
    ++result.taps;
  }
  return result;
}

}  // namespace lathe
