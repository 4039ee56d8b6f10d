// The OpenCL functions that Lathe uses, in one table filled by dlopen: one binary runs on machines with and without an
// OpenCL loader. Nothing links libOpenCL.
#pragma once

#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl.h>

#include <string>
#include <string_view>

namespace lathe {

// clang-format off
#define LATHE_OPENCL_FUNCTIONS(F) \
  F(clGetPlatformIDs) F(clGetPlatformInfo) F(clGetDeviceIDs) F(clGetDeviceInfo) F(clCreateContext) \
  F(clReleaseContext) F(clCreateCommandQueue) F(clReleaseCommandQueue) F(clCreateBuffer) F(clReleaseMemObject) \
  F(clCreateProgramWithSource) F(clCreateProgramWithBinary) F(clBuildProgram) F(clGetProgramInfo) \
  F(clGetProgramBuildInfo) F(clReleaseProgram) F(clCreateKernel) F(clReleaseKernel) F(clGetKernelWorkGroupInfo) \
  F(clSetKernelArg) F(clEnqueueNDRangeKernel) F(clEnqueueReadBuffer) F(clEnqueueWriteBuffer) \
  F(clEnqueueCopyBuffer) F(clEnqueueFillBuffer) F(clEnqueueMapBuffer) F(clEnqueueUnmapMemObject) \
  F(clEnqueueMarkerWithWaitList) F(clEnqueueBarrierWithWaitList) F(clWaitForEvents) F(clGetEventInfo) \
  F(clReleaseEvent) F(clGetEventProfilingInfo) F(clFlush) F(clFinish)
// clang-format on

struct OpenClApi {
#define LATHE_DECLARE(name) decltype(&::name) name = nullptr;
  LATHE_OPENCL_FUNCTIONS(LATHE_DECLARE)
#undef LATHE_DECLARE
};

// Null when there is no loader, with the reason.
const OpenClApi* try_opencl_api(std::string* reason = nullptr);
const OpenClApi& opencl_api();  // DeviceError with the reason

std::string_view opencl_error_name(cl_int);
void check_opencl(cl_int status, const char* call);  // DriverError unless CL_SUCCESS

}  // namespace lathe

// LATHE_CL(cl.clFinish(queue)): DriverError with the call and the error's name when it fails.
#define LATHE_CL(call) ::lathe::check_opencl((call), #call)
