#include "backend/opencl/opencl_api.h"

#include <dlfcn.h>

#include <vector>

#include "backend/opencl/pocl_folder.h"
#include "base/error.h"

namespace lathe {
namespace {

struct Loaded {
  OpenClApi api;
  std::string reason;  // empty: loaded
};

// Drivers look at the environment when they are asked for devices for the first time.
void start_drivers(const OpenClApi& cl) {
  cl_uint count = 0;
  if (cl.clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return;
  std::vector<cl_platform_id> platforms(count);
  if (count == 0 || cl.clGetPlatformIDs(count, platforms.data(), nullptr) != CL_SUCCESS) return;
  for (const cl_platform_id p : platforms) cl.clGetDeviceIDs(p, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
}

Loaded load() {
  Loaded l;
  const PoclFolderVariable variable;
  // Never closed: drivers keep threads of their own.
  void* library = dlopen("libOpenCL.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    l.reason = fmt::format(
        "no OpenCL loader: {} (Debian: apt install ocl-icd-libopencl1 and a driver, e.g. pocl-opencl-icd)", dlerror());
    return l;
  }
#define LATHE_RESOLVE(name)                                                \
  l.api.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (!l.api.name && l.reason.empty())                                     \
    l.reason = "the OpenCL loader libOpenCL.so.1 lacks " #name "; OpenCL 1.2 is needed";
  LATHE_OPENCL_FUNCTIONS(LATHE_RESOLVE)
#undef LATHE_RESOLVE
  if (l.reason.empty()) start_drivers(l.api);
  return l;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

const OpenClApi* try_opencl_api(std::string* reason) {
  const Loaded& l = loaded();
  if (l.reason.empty()) return &l.api;
  if (reason) *reason = l.reason;
  return nullptr;
}

const OpenClApi& opencl_api() {
  std::string reason;
  const OpenClApi* api = try_opencl_api(&reason);
  if (!api) throw DeviceError("opencl: " + reason);
  return *api;
}

std::string_view opencl_error_name(cl_int e) {
  switch (e) {
#define LATHE_NAME(name) \
  case name: return #name;
    LATHE_NAME(CL_SUCCESS)
    LATHE_NAME(CL_DEVICE_NOT_FOUND)
    LATHE_NAME(CL_DEVICE_NOT_AVAILABLE)
    LATHE_NAME(CL_COMPILER_NOT_AVAILABLE)
    LATHE_NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE)
    LATHE_NAME(CL_OUT_OF_RESOURCES)
    LATHE_NAME(CL_OUT_OF_HOST_MEMORY)
    LATHE_NAME(CL_MEM_COPY_OVERLAP)
    LATHE_NAME(CL_BUILD_PROGRAM_FAILURE)
    LATHE_NAME(CL_MAP_FAILURE)
    LATHE_NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST)
    LATHE_NAME(CL_INVALID_VALUE)
    LATHE_NAME(CL_INVALID_PLATFORM)
    LATHE_NAME(CL_INVALID_DEVICE)
    LATHE_NAME(CL_INVALID_CONTEXT)
    LATHE_NAME(CL_INVALID_COMMAND_QUEUE)
    LATHE_NAME(CL_INVALID_MEM_OBJECT)
    LATHE_NAME(CL_INVALID_BINARY)
    LATHE_NAME(CL_INVALID_BUILD_OPTIONS)
    LATHE_NAME(CL_INVALID_PROGRAM)
    LATHE_NAME(CL_INVALID_PROGRAM_EXECUTABLE)
    LATHE_NAME(CL_INVALID_KERNEL_NAME)
    LATHE_NAME(CL_INVALID_KERNEL)
    LATHE_NAME(CL_INVALID_ARG_INDEX)
    LATHE_NAME(CL_INVALID_ARG_VALUE)
    LATHE_NAME(CL_INVALID_ARG_SIZE)
    LATHE_NAME(CL_INVALID_KERNEL_ARGS)
    LATHE_NAME(CL_INVALID_WORK_DIMENSION)
    LATHE_NAME(CL_INVALID_WORK_GROUP_SIZE)
    LATHE_NAME(CL_INVALID_WORK_ITEM_SIZE)
    LATHE_NAME(CL_INVALID_GLOBAL_OFFSET)
    LATHE_NAME(CL_INVALID_EVENT_WAIT_LIST)
    LATHE_NAME(CL_INVALID_EVENT)
    LATHE_NAME(CL_INVALID_OPERATION)
    LATHE_NAME(CL_INVALID_BUFFER_SIZE)
    LATHE_NAME(CL_INVALID_GLOBAL_WORK_SIZE)
#undef LATHE_NAME
  }
  return e == -1001 ? "CL_PLATFORM_NOT_FOUND_KHR" : "unknown error";
}

void check_opencl(cl_int status, const char* call) {
  if (status == CL_SUCCESS) return;
  std::string_view name = call;  // "opencl_api().clFlush(queue)": the function alone
  if (const size_t api = name.find("()."); api != name.npos) name.remove_prefix(api + 3);
  name = name.substr(0, name.find('('));
  throw DriverError(fmt::format("opencl: {} failed: {} ({})", name, opencl_error_name(status), status));
}

}  // namespace lathe
