// The kernel table of the cuda backend.
#pragma once

#include "backend/backend.h"

namespace lathe {

const KernelTable& cuda_kernels();

}  // namespace lathe
