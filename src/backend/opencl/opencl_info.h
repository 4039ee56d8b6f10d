// What OpenCL says about platforms and devices, as C++ values.
#pragma once

#include <string>
#include <vector>

#include "backend/kernels/call.h"
#include "backend/opencl/opencl_api.h"
#include "ir/target.h"

namespace lathe {

struct OpenClDeviceId {
  cl_platform_id platform = nullptr;
  cl_device_id device = nullptr;
};

// All devices of all platforms, in the loader's order: number i is "opencl:i". Empty, with a reason, where there are
// none.
std::vector<OpenClDeviceId> opencl_devices(std::string* reason = nullptr);

std::string device_text(cl_device_id, cl_device_info);
std::string platform_text(cl_platform_id, cl_platform_info);
template <class T>
T device_number(cl_device_id device, cl_device_info what) {
  T value{};
  LATHE_CL(opencl_api().clGetDeviceInfo(device, what, sizeof value, &value, nullptr));
  return value;
}

bool is_cpu(cl_device_id);
bool is_pocl(const OpenClDeviceId&);
std::string opencl_unusable(cl_device_id);  // why Lathe cannot compute with it; empty: it can
std::string device_identity(cl_device_id);  // of device and driver: what compiled programs depend on

// What one group and one allocation may take: what the device says, or less where LATHE_OPENCL_LIMITS =
// "work-items,local bytes,allocation bytes" says so (for tests: a large device behaves like a small one).
struct OpenClLimits {
  int64_t group = 1, local_bytes = 0, allocation_bytes = 0;
};
OpenClLimits opencl_limits(cl_device_id);
LaunchStyle fitting_style(LaunchStyle, const OpenClLimits&);  // small in place of wide where groups are small
// Of the kernels: narrow on CPUs, wide or small elsewhere; LATHE_OPENCL_FORM = narrow or wide forces one.
LaunchStyle usual_style(cl_device_id);
Target opencl_target(cl_device_id);  // without native_ops

}  // namespace lathe
