#include "backend/cuda/cuda_api.h"

#include <dlfcn.h>

#include <initializer_list>

#include "base/error.h"

namespace lathe::cuda {
namespace {

// Opens the first name that exists; never closed, because drivers keep threads of their own.
void* open_library(const std::string& folder, std::initializer_list<const char*> names, std::string* first_error) {
  for (const char* name : names) {
    const std::string path = folder.empty() ? name : folder + "/" + name;
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (first_error->empty()) *first_error = dlerror();
  }
  return nullptr;
}

template <class F>
void resolve(void* library, const char* name, F& function, std::string& missing, std::string_view needed) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function && missing.empty()) missing = fmt::format("it lacks {}; {}", name, needed);
}

}  // namespace

Api load_api(const std::string& folder) {
  Api api;
  std::string error;
#define LATHE_RESOLVE(result, name, params) resolve(library, #name, api.name, missing, needed);
  {
    constexpr std::string_view needed = "a driver for CUDA 12.0 or newer is needed (R525)";
    std::string& missing = api.driver_missing;
    if (void* library = open_library(folder, {"libcuda.so.1"}, &error)) {
      LATHE_CUDA_DRIVER(LATHE_RESOLVE)
      if (!missing.empty()) missing = "the NVIDIA driver's libcuda.so.1 is too old: " + missing;
    } else {
      missing = fmt::format("no NVIDIA driver: {} ({})", error, needed);
    }
    error.clear();
  }
  if (!api.driver_missing.empty()) {
    // The libraries take long to open and are of no use.
    api.nvrtc_missing = api.cublaslt_missing = api.cudnn_missing = "not looked for, because there is no driver";
    return api;
  }
  {
    constexpr std::string_view needed = "NVRTC of CUDA 12 or 13 is needed (package cuda-nvrtc or the toolkit)";
    std::string& missing = api.nvrtc_missing;
    if (void* library = open_library(folder, {"libnvrtc.so.13", "libnvrtc.so.12"}, &error)) {
      LATHE_CUDA_NVRTC(LATHE_RESOLVE)
      if (!missing.empty()) missing = "NVRTC is too old: " + missing;
    } else {
      missing = fmt::format("no NVRTC: {}; {}; add its folder to LD_LIBRARY_PATH", error, needed);
    }
    error.clear();
  }
  {
    constexpr std::string_view needed = "cuBLASLt of CUDA 12 or 13 is needed (package libcublas or the toolkit)";
    std::string& missing = api.cublaslt_missing;
    if (void* library = open_library(folder, {"libcublasLt.so.13", "libcublasLt.so.12"}, &error)) {
      LATHE_CUDA_CUBLASLT(LATHE_RESOLVE)
      if (!missing.empty()) missing = "cuBLASLt is too old: " + missing;
    } else {
      missing = fmt::format("no cuBLASLt: {}; {}", error, needed);
    }
    error.clear();
  }
  {
    constexpr std::string_view needed = "cuDNN 9 is needed (package libcudnn9-cuda-12 or libcudnn9-cuda-13)";
    std::string& missing = api.cudnn_missing;
    if (void* library = open_library(folder, {"libcudnn.so.9"}, &error)) {
      LATHE_CUDA_CUDNN(LATHE_RESOLVE)
      if (!missing.empty()) missing = "cuDNN is too old: " + missing;
    } else {
      missing = fmt::format("no cuDNN: {}; {}", error, needed);
    }
    error.clear();
  }
  {
    std::string missing;
    constexpr std::string_view needed = "";
    if (void* library = open_library(folder, {"libnvtx3interop.so.1"}, &error)) {
      LATHE_CUDA_NVTX(LATHE_RESOLVE)
    }
    if (!missing.empty()) api.nvtxRangePushA = nullptr;
  }
#undef LATHE_RESOLVE
  return api;
}

const Api& loaded_api() {
  static const Api api = load_api("");
  return api;
}

namespace {

[[noreturn]] void fail(std::string_view call, int status, std::string_view name, std::string_view text) {
  throw DeviceError(fmt::format("cuda: {} failed: {} ({}){}{}", call.substr(0, call.find('(')), name, status,
                                text.empty() ? "" : ": ", text));
}

std::string_view or_unknown(const char* text) { return text ? text : "unknown error"; }

}  // namespace

void check_driver(const Api& api, int status, const char* call) {
  if (status == kSuccess) return;
  const char *name = nullptr, *text = nullptr;
  api.cuGetErrorName(status, &name);
  api.cuGetErrorString(status, &text);
  fail(call, status, or_unknown(name), text ? text : "");
}

void check_nvrtc(const Api& api, int status, const char* call) {
  if (status != kRtcSuccess) fail(call, status, or_unknown(api.nvrtcGetErrorString(status)), "");
}

void check_cublaslt(const Api& api, int status, const char* call) {
  if (status != kLtSuccess) fail(call, status, or_unknown(api.cublasLtGetStatusString(status)), "");
}

void check_cudnn(const Api& api, int status, const char* call) {
  if (status == kDnnSuccess) return;
  char text[512] = "";
  api.cudnnGetLastErrorString(text, sizeof text);
  fail(call, status, or_unknown(api.cudnnGetErrorString(status)), text);
}

}  // namespace lathe::cuda
