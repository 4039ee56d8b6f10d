// The opencl backend's kernel table.
#pragma once

#include "backend/backend.h"

namespace lathe {

const KernelTable& opencl_kernels();

}  // namespace lathe
