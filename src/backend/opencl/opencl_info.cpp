#include "backend/opencl/opencl_info.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace lathe {
namespace {

constexpr int64_t kLeastAllocation = 4096;  // bytes: holds a value at any alignment that devices ask for
constexpr int64_t kLeastLocal = 32768;      // bytes that texts take; every full OpenCL 1.2 device has them

}  // namespace

std::vector<OpenClDeviceId> opencl_devices(std::string* reason) {
  const OpenClApi* cl = try_opencl_api(reason);
  if (!cl) return {};
  cl_uint count = 0;
  std::vector<cl_platform_id> platforms;
  if (cl->clGetPlatformIDs(0, nullptr, &count) == CL_SUCCESS && count > 0) {
    platforms.resize(count);
    LATHE_CL(cl->clGetPlatformIDs(count, platforms.data(), nullptr));
  }
  std::vector<OpenClDeviceId> all;
  for (const cl_platform_id platform : platforms) {
    cl_uint devices = 0;
    if (cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &devices) != CL_SUCCESS || devices == 0) continue;
    std::vector<cl_device_id> ids(devices);
    LATHE_CL(cl->clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, devices, ids.data(), nullptr));
    for (const cl_device_id id : ids) all.push_back({platform, id});
  }
  if (all.empty() && reason)
    *reason = platforms.empty() ? "the OpenCL loader found no driver (see /etc/OpenCL/vendors)"
                                : "no OpenCL driver offers a device";
  return all;
}

std::string device_text(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  LATHE_CL(opencl_api().clGetDeviceInfo(device, what, 0, nullptr, &size));
  std::string text(size, '\0');
  LATHE_CL(opencl_api().clGetDeviceInfo(device, what, size, text.data(), nullptr));
  return text.c_str();  // without the terminating 0
}

std::string platform_text(cl_platform_id platform, cl_platform_info what) {
  size_t size = 0;
  LATHE_CL(opencl_api().clGetPlatformInfo(platform, what, 0, nullptr, &size));
  std::string text(size, '\0');
  LATHE_CL(opencl_api().clGetPlatformInfo(platform, what, size, text.data(), nullptr));
  return text.c_str();
}

bool is_cpu(cl_device_id device) {
  return (device_number<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0;
}

bool is_pocl(const OpenClDeviceId& id) {
  return platform_text(id.platform, CL_PLATFORM_NAME) == "Portable Computing Language";
}

LaunchStyle fitting_style(LaunchStyle s, const OpenClLimits& limits) {
  return s == LaunchStyle::wide && limits.group < group_items(s) ? LaunchStyle::small : s;
}

LaunchStyle usual_style(cl_device_id device) {
  bool narrow = is_cpu(device);
  if (const char* form = std::getenv("LATHE_OPENCL_FORM")) {
    const std::string_view name(form);
    if (name != "narrow" && name != "wide")
      throw UserError(fmt::format("LATHE_OPENCL_FORM: expected narrow or wide, got {}", name), Exit::usage);
    narrow = name == "narrow";
  }
  return fitting_style(narrow ? LaunchStyle::narrow : LaunchStyle::wide, opencl_limits(device));
}

std::string opencl_unusable(cl_device_id device) {
  if (!device_number<cl_bool>(device, CL_DEVICE_AVAILABLE)) return "its driver says that it is not available";
  const std::string version = device_text(device, CL_DEVICE_VERSION);  // "OpenCL 1.2 ..."
  int major = 0, minor = 0;
  if (std::sscanf(version.c_str(), "OpenCL %d.%d", &major, &minor) == 2 && major * 10 + minor < 12)
    return fmt::format("its driver offers OpenCL {}.{}; 1.2 or newer is needed, install a newer driver", major, minor);
  if (!device_number<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE)) return "its driver has no compiler of kernels";
  const OpenClLimits limits = opencl_limits(device);
  if (limits.local_bytes < kLeastLocal)
    return fmt::format("it has {} bytes of local memory; {} are needed", limits.local_bytes, kLeastLocal);
  const int items = group_items(usual_style(device));
  if (limits.group < items) return fmt::format("it runs groups of {} work-items; {} are needed", limits.group, items);
  return "";
}

std::string device_identity(cl_device_id device) {
  std::string text;
  for (const cl_device_info what : {CL_DEVICE_NAME, CL_DEVICE_VENDOR, CL_DEVICE_VERSION, CL_DRIVER_VERSION})
    text += device_text(device, what) + "\n";
  return text;
}

OpenClLimits opencl_limits(cl_device_id device) {
  OpenClLimits l;
  l.group = static_cast<int64_t>(device_number<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE));
  l.local_bytes = static_cast<int64_t>(device_number<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE));
  l.allocation_bytes = static_cast<int64_t>(device_number<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE));
  if (const char* text = std::getenv("LATHE_OPENCL_LIMITS")) {
    long long group = 0, local = 0, allocation = 0;
    int read = 0;
    if (std::sscanf(text, "%lld,%lld,%lld%n", &group, &local, &allocation, &read) != 3 || text[read] != '\0' ||
        group < 1 || local < 1 || allocation < kLeastAllocation)
      throw UserError(
          fmt::format("LATHE_OPENCL_LIMITS: expected work-items,local bytes,allocation bytes, the last at least "
                      "{}, got {}",
                      kLeastAllocation, text),
          Exit::usage);
    l.group = std::min<int64_t>(l.group, group);
    l.local_bytes = std::min<int64_t>(l.local_bytes, local);
    l.allocation_bytes = std::min<int64_t>(l.allocation_bytes, allocation);
  }
  return l;
}

Target opencl_target(cl_device_id device) {
  Target t;
  t.name = "opencl";
  t.dtypes = {DType::f32, DType::i32, DType::i64, DType::u8, DType::b8, DType::f16, DType::bf16};
  if (device_text(device, CL_DEVICE_EXTENSIONS).find("cl_khr_fp64") != std::string::npos)
    t.dtypes.push_back(DType::f64);
  t.alignment = std::max<int64_t>(128, device_number<cl_uint>(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8);
  t.memory = static_cast<int64_t>(device_number<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE));
  t.largest_allocation = opencl_limits(device).allocation_bytes;
  t.host_memory = false;
  t.threads = static_cast<int>(device_number<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS));
  return t;
}

}  // namespace lathe
