// Declares the simulator's version of every entry point: sim_cuInit, ... Their symbols have the real names, so that the
// same code is also a library that the product opens in place of NVIDIA's.
#pragma once

#include "backend/cuda/cuda_abi.h"

namespace lathe::sim {

using namespace cuda;  // the parameter lists name its types

#define LATHE_DECLARE(result, name, params) \
  extern "C" __attribute__((visibility("default"))) result sim_##name params asm(#name);
LATHE_CUDA_DRIVER(LATHE_DECLARE)
LATHE_CUDA_NVRTC(LATHE_DECLARE)
LATHE_CUDA_CUBLASLT(LATHE_DECLARE)
LATHE_CUDA_CUDNN(LATHE_DECLARE)
LATHE_CUDA_NVTX(LATHE_DECLARE)
#undef LATHE_DECLARE

}  // namespace lathe::sim
