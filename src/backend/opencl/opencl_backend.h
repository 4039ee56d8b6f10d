// The opencl backend: any OpenCL 1.2 device (GPUs, and CPUs through PoCL) behind the dlopen'ed loader.
#pragma once

#include "backend/backend.h"

namespace lathe {

const Backend& opencl_backend();

}  // namespace lathe
