#include "backend/cuda/cuda_api.h"

#include <dlfcn.h>

#include <vector>

#include "base/error.h"

namespace lathe::cuda {
namespace {

constexpr int kOldestCuda = 12, kNewestCuda = 13;
constexpr size_t kOldestCudnn = 90000;
constexpr std::string_view kDriverNeeded = "a driver for CUDA 12.0 or newer is needed (R525)";

// Opens the first name that exists; never closed, because drivers keep threads of their own.
void* open_library(const std::string& folder, const std::vector<std::string>& names, std::string* first_error) {
  for (const std::string& name : names) {
    const std::string path = folder.empty() ? name : folder + "/" + name;
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    if (first_error->empty()) *first_error = dlerror();
  }
  return nullptr;
}

std::string cuda_version(int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); }

// Libraries of a newer major version than the driver's do not run on it. The newest that does comes first.
std::vector<std::string> for_driver(int driver, std::string_view name) {
  std::vector<std::string> names;
  for (int major = kNewestCuda; major >= kOldestCuda; --major)
    if (major <= driver / 1000) names.push_back(fmt::format("{}.{}", name, major));
  return names;
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
    constexpr std::string_view needed = kDriverNeeded;
    std::string& missing = api.driver_missing;
    if (void* library = open_library(folder, {"libcuda.so.1"}, &error)) {
      LATHE_CUDA_DRIVER(LATHE_RESOLVE)
      if (!missing.empty()) missing = "the NVIDIA driver's libcuda.so.1 is too old: " + missing;
    } else {
      missing = fmt::format("no NVIDIA driver: {} ({})", error, needed);
    }
    error.clear();
  }
  int driver = 0;
  if (api.driver_missing.empty() && api.cuDriverGetVersion(&driver) == kSuccess && driver < 1000 * kOldestCuda)
    api.driver_missing =
        fmt::format("the NVIDIA driver is too old: it is for CUDA {}; {}", cuda_version(driver), kDriverNeeded);
  if (!api.driver_missing.empty()) {
    // The libraries take long to open and are of no use.
    api.nvrtc_missing = api.cublaslt_missing = api.cudnn_missing = "not looked for, because there is no driver";
    return api;
  }
  const std::string releases = fmt::format("of CUDA {}{}", kOldestCuda, driver < 1000 * kNewestCuda ? "" : " or 13");
  const std::string path_hint =
      fmt::format("add its folder to LD_LIBRARY_PATH (the driver is for CUDA {})", cuda_version(driver));
  {
    const std::string needed = fmt::format("NVRTC {} is needed (package cuda-nvrtc or the toolkit)", releases);
    std::string& missing = api.nvrtc_missing;
    if (void* library = open_library(folder, for_driver(driver, "libnvrtc.so"), &error)) {
      LATHE_CUDA_NVRTC(LATHE_RESOLVE)
      int major = 0, minor = 0;
      if (missing.empty() && api.nvrtcVersion(&major, &minor) == kRtcSuccess && major < kOldestCuda)
        missing = fmt::format("it is version {}.{}; {}", major, minor, needed);
      if (!missing.empty()) missing = "NVRTC is too old: " + missing;
    } else {
      missing = fmt::format("no NVRTC: {}; {}; {}", error, needed, path_hint);
    }
    error.clear();
  }
  {
    const std::string needed = fmt::format("cuBLASLt {} is needed (package libcublas or the toolkit)", releases);
    std::string& missing = api.cublaslt_missing;
    if (void* library = open_library(folder, for_driver(driver, "libcublasLt.so"), &error)) {
      LATHE_CUDA_CUBLASLT(LATHE_RESOLVE)
      if (missing.empty() && api.cublasLtGetVersion() < 10000 * kOldestCuda)
        missing = fmt::format("it is version {}; {}", api.cublasLtGetVersion(), needed);
      if (!missing.empty()) missing = "cuBLASLt is too old: " + missing;
    } else {
      missing = fmt::format("no cuBLASLt: {}; {}; {}", error, needed, path_hint);
    }
    error.clear();
  }
  {
    constexpr std::string_view needed = "cuDNN 9 is needed (package libcudnn9-cuda-12 or libcudnn9-cuda-13)";
    std::string& missing = api.cudnn_missing;
    if (void* library = open_library(folder, {"libcudnn.so.9"}, &error)) {
      LATHE_CUDA_CUDNN(LATHE_RESOLVE)
      if (const size_t version = missing.empty() ? api.cudnnGetVersion() : kOldestCudnn; version < kOldestCudnn)
        missing =
            fmt::format("it is version {}.{}.{}; {}", version / 1000, version % 1000 / 100, version % 100, needed);
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

std::string failure(std::string_view call, int status, std::string_view name, std::string_view text) {
  return fmt::format("cuda: {} failed: {} ({}){}{}", call.substr(0, call.find('(')), name, status,
                     text.empty() ? "" : ": ", text);
}

std::string_view or_unknown(const char* text) { return text ? text : "unknown error"; }

}  // namespace

std::string driver_failure(const Api& api, int status, const char* call) {
  const char *name = nullptr, *text = nullptr;
  api.cuGetErrorName(status, &name);
  api.cuGetErrorString(status, &text);
  return failure(call, status, or_unknown(name), text ? text : "");
}

void check_driver(const Api& api, int status, const char* call) {
  if (status != kSuccess) throw DriverError(driver_failure(api, status, call));
}

void check_nvrtc(const Api& api, int status, const char* call) {
  if (status != kRtcSuccess) throw DeviceError(failure(call, status, or_unknown(api.nvrtcGetErrorString(status)), ""));
}

void check_cublaslt(const Api& api, int status, const char* call) {
  if (status != kLtSuccess)
    throw DeviceError(failure(call, status, or_unknown(api.cublasLtGetStatusString(status)), ""));
}

void check_cudnn(const Api& api, int status, const char* call) {
  if (status == kDnnSuccess) return;
  char text[512] = "";
  api.cudnnGetLastErrorString(text, sizeof text);
  throw DeviceError(failure(call, status, or_unknown(api.cudnnGetErrorString(status)), text));
}

}  // namespace lathe::cuda
