// The data gradient of a strided convolution, along one axis: pixels of dx fall into classes by their index modulo the
// stride, and in each class the same taps of the kernel are live.
#pragma once

#include <cstdint>

#include "ops/window.h"

namespace lathe {

// The pixels of dx with index = phase (mod stride) and the taps that reach them: tap t is kernel index first + t * step
// and reads dy at i + base + t * delta for pixel number i of the phase. Taps are taken from the last to the first, so
// that dy is read in the order of memory.
struct ConvPhase {
  int64_t size = 0;  // pixels of dx
  int64_t taps = 0;
  int64_t first = 0, step = 0, base = 0, delta = 0;
};

ConvPhase conv_phase(int64_t phase, const WindowAxis&);

}  // namespace lathe
