// Grids that are larger along y or z than a card's (65535 blocks): all their blocks stand along x, where 2^31 - 1 fit,
// and the text computes the three numbers back.
#pragma once

#include <array>

#include "backend/kernels/call.h"

namespace lathe {

// The call as it is where it fits; otherwise one of an equal text with another name. DeviceError when there are more
// blocks than fit along x.
KernelCall fold_grid(KernelCall, const std::array<int64_t, 3>& largest);

}  // namespace lathe
