// The CUDA functions that Lathe uses, in one table filled by dlopen: one binary runs on machines with and without an
// NVIDIA card, and the tests fill the same table with a simulator. Nothing links a CUDA library.
#pragma once

#include <string>
#include <string_view>

#include "backend/cuda/cuda_abi.h"

namespace lathe::cuda {

struct Api {
#define LATHE_DECLARE(result, name, params) result(*name) params = nullptr;
  LATHE_CUDA_DRIVER(LATHE_DECLARE)
  LATHE_CUDA_NVRTC(LATHE_DECLARE)
  LATHE_CUDA_CUBLASLT(LATHE_DECLARE)
  LATHE_CUDA_CUDNN(LATHE_DECLARE)
  LATHE_CUDA_NVTX(LATHE_DECLARE)
#undef LATHE_DECLARE

  // Why a library cannot be used; empty: it can. Without driver or NVRTC there is no device; without cuBLASLt or cuDNN
  // the kernels in the common dialect take over where they can.
  std::string driver_missing, nvrtc_missing, cublaslt_missing, cudnn_missing;
};

// The libraries of this machine, opened at the first call.
const Api& loaded_api();
// Reads the libraries from one folder only; "" means the system's search path. For tests of the messages.
Api load_api(const std::string& folder);

// DeviceError with call, error's name and text, unless it succeeded.
void check_driver(const Api&, int status, const char* call);
void check_nvrtc(const Api&, int status, const char* call);
void check_cublaslt(const Api&, int status, const char* call);
void check_cudnn(const Api&, int status, const char* call);
std::string driver_failure(const Api&, int status, const char* call);  // that text

}  // namespace lathe::cuda

// LATHE_CUDA(api, cuCtxSetCurrent(context)) calls api.cuCtxSetCurrent and checks.
#define LATHE_CUDA(api, call) ::lathe::cuda::check_driver(api, (api).call, #call)
#define LATHE_NVRTC(api, call) ::lathe::cuda::check_nvrtc(api, (api).call, #call)
#define LATHE_CUBLASLT(api, call) ::lathe::cuda::check_cublaslt(api, (api).call, #call)
#define LATHE_CUDNN(api, call) ::lathe::cuda::check_cudnn(api, (api).call, #call)
