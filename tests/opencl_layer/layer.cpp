// An OpenCL layer (OPENCL_LAYERS of the ICD loader): stands between the program and the driver, counts the calls that
// block or make something, and makes the driver fail or lie, as LATHE_LAYER says, a list with ';' between:
//   gpu               devices say that they are GPUs
//   old               devices say that they have OpenCL 1.1
//   fail:CALL:N:CODE  the N-th CALL (counted from 1) and all that follow answer with the error CODE
//   late:CALL:N:CODE  the same from the first CALL after N kernels on
//   count:FILE        at the end of the process, FILE holds the number of calls
#define CL_TARGET_OPENCL_VERSION 120
#define CL_USE_DEPRECATED_OPENCL_1_2_APIS
#include <CL/cl_layer.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sstream>
#include <string>

namespace {

enum Call { kKernel, kFinish, kWait, kQuery, kBlockingCopy, kBlockingMap, kMap, kMarker, kFlush, kMake, kCalls };
constexpr const char* kNames[kCalls] = {
    "clEnqueueNDRangeKernel", "clFinish", "clWaitForEvents", "clGetEventInfo", "blocking_copy",
    "blocking_map",           "map",      "marker",          "clFlush",        "make"};

const cl_icd_dispatch* g_driver = nullptr;
cl_icd_dispatch g_layer;
bool g_gpu = false, g_old = false;
int g_fail_call = -1, g_fail_code = 0;
long g_fail_at = 0, g_fail_after = 0;
std::string g_count_file;
std::atomic<long> g_calls[kCalls];
std::atomic<bool> g_lost = false;

// Counts the call; an error when the device is lost.
cl_int enter(Call call) {
  const long n = ++g_calls[call];
  if (call == g_fail_call && n >= g_fail_at && g_calls[kKernel] >= g_fail_after) g_lost = true;
  return g_lost ? g_fail_code : CL_SUCCESS;
}

cl_int CL_API_CALL enqueue_kernel(cl_command_queue queue, cl_kernel kernel, cl_uint dims, const size_t* offset,
                                  const size_t* global, const size_t* local, cl_uint count, const cl_event* events,
                                  cl_event* event) {
  if (const cl_int error = enter(kKernel)) return error;
  return g_driver->clEnqueueNDRangeKernel(queue, kernel, dims, offset, global, local, count, events, event);
}

cl_int CL_API_CALL finish(cl_command_queue queue) {
  if (const cl_int error = enter(kFinish)) return error;
  return g_driver->clFinish(queue);
}

cl_int CL_API_CALL wait_for(cl_uint count, const cl_event* events) {
  if (const cl_int error = enter(kWait)) return error;
  return g_driver->clWaitForEvents(count, events);
}

cl_int CL_API_CALL event_info(cl_event event, cl_event_info what, size_t size, void* value, size_t* got) {
  if (const cl_int error = enter(kQuery)) return error;
  return g_driver->clGetEventInfo(event, what, size, value, got);
}

cl_int CL_API_CALL read_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                               void* to, cl_uint count, const cl_event* events, cl_event* event) {
  if (blocking)
    if (const cl_int error = enter(kBlockingCopy)) return error;
  return g_driver->clEnqueueReadBuffer(queue, buffer, blocking, offset, size, to, count, events, event);
}

cl_int CL_API_CALL write_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, size_t offset, size_t size,
                                const void* from, cl_uint count, const cl_event* events, cl_event* event) {
  if (blocking)
    if (const cl_int error = enter(kBlockingCopy)) return error;
  return g_driver->clEnqueueWriteBuffer(queue, buffer, blocking, offset, size, from, count, events, event);
}

cl_int CL_API_CALL read_rect(cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t* origin,
                             const size_t* host_origin, const size_t* region, size_t row, size_t slice, size_t host_row,
                             size_t host_slice, void* to, cl_uint count, const cl_event* events, cl_event* event) {
  if (blocking)
    if (const cl_int error = enter(kBlockingCopy)) return error;
  return g_driver->clEnqueueReadBufferRect(queue, buffer, blocking, origin, host_origin, region, row, slice, host_row,
                                           host_slice, to, count, events, event);
}

cl_int CL_API_CALL write_rect(cl_command_queue queue, cl_mem buffer, cl_bool blocking, const size_t* origin,
                              const size_t* host_origin, const size_t* region, size_t row, size_t slice,
                              size_t host_row, size_t host_slice, const void* from, cl_uint count,
                              const cl_event* events, cl_event* event) {
  if (blocking)
    if (const cl_int error = enter(kBlockingCopy)) return error;
  return g_driver->clEnqueueWriteBufferRect(queue, buffer, blocking, origin, host_origin, region, row, slice, host_row,
                                            host_slice, from, count, events, event);
}

void* CL_API_CALL map_buffer(cl_command_queue queue, cl_mem buffer, cl_bool blocking, cl_map_flags flags, size_t offset,
                             size_t size, cl_uint count, const cl_event* events, cl_event* event, cl_int* status) {
  if (const cl_int error = enter(blocking ? kBlockingMap : kMap)) {
    if (status) *status = error;
    return nullptr;
  }
  return g_driver->clEnqueueMapBuffer(queue, buffer, blocking, flags, offset, size, count, events, event, status);
}

cl_int CL_API_CALL marker(cl_command_queue queue, cl_uint count, const cl_event* events, cl_event* event) {
  if (const cl_int error = enter(kMarker)) return error;
  return g_driver->clEnqueueMarkerWithWaitList(queue, count, events, event);
}

cl_int CL_API_CALL flush(cl_command_queue queue) {
  if (const cl_int error = enter(kFlush)) return error;
  return g_driver->clFlush(queue);
}

cl_mem CL_API_CALL create_buffer(cl_context context, cl_mem_flags flags, size_t size, void* host, cl_int* status) {
  ++g_calls[kMake];
  return g_driver->clCreateBuffer(context, flags, size, host, status);
}

cl_kernel CL_API_CALL create_kernel(cl_program program, const char* name, cl_int* status) {
  ++g_calls[kMake];
  return g_driver->clCreateKernel(program, name, status);
}

cl_int CL_API_CALL build_program(cl_program program, cl_uint count, const cl_device_id* devices, const char* options,
                                 void(CL_CALLBACK* done)(cl_program, void*), void* data) {
  ++g_calls[kMake];
  return g_driver->clBuildProgram(program, count, devices, options, done, data);
}

cl_command_queue CL_API_CALL create_queue(cl_context context, cl_device_id device, cl_command_queue_properties what,
                                          cl_int* status) {
  ++g_calls[kMake];
  return g_driver->clCreateCommandQueue(context, device, what, status);
}

cl_int CL_API_CALL device_info(cl_device_id device, cl_device_info what, size_t size, void* value, size_t* got) {
  if (g_gpu && what == CL_DEVICE_TYPE && value && size >= sizeof(cl_device_type)) {
    *static_cast<cl_device_type*>(value) = CL_DEVICE_TYPE_GPU;
    if (got) *got = sizeof(cl_device_type);
    return CL_SUCCESS;
  }
  if (g_old && what == CL_DEVICE_VERSION) {
    static constexpr char kText[] = "OpenCL 1.1 as it was";
    if (got) *got = sizeof kText;
    if (value) std::memcpy(value, kText, sizeof kText < size ? sizeof kText : size);
    return CL_SUCCESS;
  }
  return g_driver->clGetDeviceInfo(device, what, size, value, got);
}

void read_orders() {
  const char* orders = std::getenv("LATHE_LAYER");
  std::istringstream list(orders ? orders : "");
  for (std::string order; std::getline(list, order, ';');) {
    if (order == "gpu") g_gpu = true;
    if (order == "old") g_old = true;
    if (order.rfind("count:", 0) == 0) g_count_file = order.substr(6);
    char call[64] = "";
    if (std::sscanf(order.c_str(), "fail:%63[^:]:%ld:%d", call, &g_fail_at, &g_fail_code) == 3 ||
        std::sscanf(order.c_str(), "late:%63[^:]:%ld:%d", call, &g_fail_after, &g_fail_code) == 3)
      for (int i = 0; i < kCalls; ++i)
        if (!std::strcmp(call, kNames[i])) g_fail_call = i;
  }
}

struct Counts {
  ~Counts() {
    if (g_count_file.empty()) return;
    if (std::FILE* f = std::fopen(g_count_file.c_str(), "w")) {
      for (int i = 0; i < kCalls; ++i) std::fprintf(f, "%s %ld\n", kNames[i], g_calls[i].load());
      std::fclose(f);
    }
  }
} g_counts;

}  // namespace

extern "C" CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info what, size_t size, void* value, size_t* got) {
  static constexpr char kName[] = "lathe test layer";
  static constexpr cl_layer_api_version kVersion = CL_LAYER_API_VERSION_100;
  const void* from = what == CL_LAYER_API_VERSION ? static_cast<const void*>(&kVersion) : kName;
  const size_t bytes = what == CL_LAYER_API_VERSION ? sizeof kVersion : sizeof kName;
  if (value && size < bytes) return CL_INVALID_VALUE;
  if (value) std::memcpy(value, from, bytes);
  if (got) *got = bytes;
  return CL_SUCCESS;
}

extern "C" CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint entries, const cl_icd_dispatch* driver,
                                                       cl_uint* entries_here, const cl_icd_dispatch** layer) {
  if (entries < sizeof g_layer / sizeof(void*)) return CL_INVALID_VALUE;
  read_orders();
  g_driver = driver;
  g_layer = *driver;
  g_layer.clEnqueueNDRangeKernel = enqueue_kernel;
  g_layer.clFinish = finish;
  g_layer.clWaitForEvents = wait_for;
  g_layer.clGetEventInfo = event_info;
  g_layer.clEnqueueReadBuffer = read_buffer;
  g_layer.clEnqueueWriteBuffer = write_buffer;
  g_layer.clEnqueueReadBufferRect = read_rect;
  g_layer.clEnqueueWriteBufferRect = write_rect;
  g_layer.clEnqueueMapBuffer = map_buffer;
  g_layer.clEnqueueMarkerWithWaitList = marker;
  g_layer.clFlush = flush;
  g_layer.clGetDeviceInfo = device_info;
  g_layer.clCreateBuffer = create_buffer;
  g_layer.clCreateKernel = create_kernel;
  g_layer.clBuildProgram = build_program;
  g_layer.clCreateCommandQueue = create_queue;
  *entries_here = static_cast<cl_uint>(sizeof g_layer / sizeof(void*));
  *layer = &g_layer;
  return CL_SUCCESS;
}
