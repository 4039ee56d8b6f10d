#include "backend/conv_phase.h"

#include <numeric>

#include "base/checked.h"

namespace lathe {

ConvPhase conv_phase(int64_t phase, const WindowAxis& a) {
  ConvPhase result;
  result.size = a.in > phase ? ceil_div(a.in - phase, a.stride) : 0;
  const int64_t common = std::gcd(a.dilation, a.stride);
  result.step = -(a.stride / common);
  result.delta = a.dilation / common;
  for (int64_t k = a.kernel - 1; k >= 0; --k) {
    const int64_t at = phase + a.pad - k * a.dilation;
    if (at % a.stride != 0) continue;
    if (result.taps == 0) {
      result.first = k;
      result.base = at / a.stride;
    }
    ++result.taps;
  }
  return result;
}

}  // namespace lathe
