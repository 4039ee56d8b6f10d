// The driver's entry points, except modules and launches, captures and graphs.
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "sim_entry.h"
#include "sim_state.h"

namespace lathe::sim {
namespace {

using namespace cuda;

constexpr size_t kPage = 4096;
constexpr double kLinkBytes = 25e6;  // per second, from the host; slow as the card's clock of 1 MHz
ContextTag* const kContext = reinterpret_cast<ContextTag*>(size_t{0xC0DE});
thread_local Context current = nullptr;

// Pages of their own with a guard page behind, so that nothing lies next to them.
Allocation map_memory(size_t bytes) {
  Allocation m;
  m.bytes = bytes;
  m.mapped = (bytes + kPage - 1) / kPage * kPage + kPage;
  void* p = mmap(nullptr, m.mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return m;
  mprotect(static_cast<char*>(p) + m.mapped - kPage, kPage, PROT_NONE);
  m.base = reinterpret_cast<Address>(p);
  return m;
}

bool is_pinned(const void* p, size_t bytes) {
  const auto a = reinterpret_cast<Address>(p);
  auto at = state().pinned.upper_bound(a);
  if (at == state().pinned.begin()) return false;
  const Allocation& m = (--at)->second;
  return a + bytes <= m.base + m.bytes;
}

template <class T>
T& of(void* handle) {
  return *static_cast<T*>(handle);
}

}  // namespace

bool in_context() { return current != nullptr; }

int sim_cuInit(unsigned flags) {
  state().initialized = true;
  return flags == 0 ? kSuccess : kErrorInvalidValue;
}
int sim_cuDriverGetVersion(int* version) {
  *version = version_of("DRIVER", 13000);
  return kSuccess;
}

int sim_cuGetErrorName(int error, const char** name) {
  static const std::map<int, const char*> kNames{
      {kSuccess, "CUDA_SUCCESS"},
      {kErrorInvalidValue, "CUDA_ERROR_INVALID_VALUE"},
      {kErrorOutOfMemory, "CUDA_ERROR_OUT_OF_MEMORY"},
      {kErrorNotInitialized, "CUDA_ERROR_NOT_INITIALIZED"},
      {kErrorInvalidDevice, "CUDA_ERROR_INVALID_DEVICE"},
      {kErrorInvalidImage, "CUDA_ERROR_INVALID_IMAGE"},
      {kErrorInvalidContext, "CUDA_ERROR_INVALID_CONTEXT"},
      {kErrorInvalidHandle, "CUDA_ERROR_INVALID_HANDLE"},
      {kErrorNotFound, "CUDA_ERROR_NOT_FOUND"},
      {kErrorIllegalAddress, "CUDA_ERROR_ILLEGAL_ADDRESS"},
      {kErrorEccUncorrectable, "CUDA_ERROR_ECC_UNCORRECTABLE"},
      {kErrorLaunchFailed, "CUDA_ERROR_LAUNCH_FAILED"},
      {kErrorLaunchOutOfResources, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"},
      {kErrorMisalignedAddress, "CUDA_ERROR_MISALIGNED_ADDRESS"},
      {kErrorStreamCaptureUnsupported, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"},
      {kErrorStreamCaptureInvalidated, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"},
      {kErrorStreamCaptureUnmatched, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED"},
      {kErrorStreamCaptureIsolation, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION"},
      {kErrorCapturedEvent, "CUDA_ERROR_CAPTURED_EVENT"}};
  const auto at = kNames.find(error);
  *name = at == kNames.end() ? "CUDA_ERROR_UNKNOWN" : at->second;
  return kSuccess;
}
int sim_cuGetErrorString(int, const char** text) {
  *text = state().last_report.c_str();
  return kSuccess;
}

int sim_cuDeviceGetCount(int* count) {
  if (!state().initialized) return kErrorNotInitialized;
  *count = 1;
  return kSuccess;
}
int sim_cuDeviceGet(DeviceId* device, int index) {
  *device = 0;
  return index == 0 ? kSuccess : kErrorInvalidDevice;
}
int sim_cuDeviceGetName(char* name, int length, DeviceId) {
  std::snprintf(name, static_cast<size_t>(length), "%s", card_name().c_str());
  return kSuccess;
}
int sim_cuDeviceGetAttribute(int* value, int attribute, DeviceId) {
  const int yz = static_cast<int>(state().largest_grid);
  const std::map<int, int> kValues{{kMaxThreadsPerBlock, 1024},
                                   {kMaxGridX, 2147483647},
                                   {kMaxGridY, yz},
                                   {kMaxGridZ, yz},
                                   {kMaxSharedPerBlock, 49152},
                                   {kClockRate, 1000},
                                   {kMultiprocessors, 2},
                                   {kMemoryClockRate, 1000},
                                   {kMemoryBusWidth, 64},
                                   {kComputeMajor, capability() / 10},
                                   {kComputeMinor, capability() % 10}};
  const auto at = kValues.find(attribute);
  if (at == kValues.end()) return kErrorInvalidValue;
  *value = at->second;
  return kSuccess;
}
int sim_cuDeviceTotalMem_v2(size_t* bytes, DeviceId) {
  *bytes = state().memory;
  return kSuccess;
}

int sim_cuDevicePrimaryCtxRetain(Context* context, DeviceId) {
  const Lock lock(state().mutex);
  ++state().context_users;
  *context = kContext;
  return kSuccess;
}
int sim_cuDevicePrimaryCtxRelease_v2(DeviceId) {
  const Lock lock(state().mutex);
  if (state().context_users == 0) return report(kErrorInvalidContext, "a context that nobody holds is released");
  if (--state().context_users == 0) current = nullptr;
  return kSuccess;
}
int sim_cuCtxSetCurrent(Context context) {
  if (state().lost) return state().lost;
  if (context != kContext || state().context_users == 0)
    return report(kErrorInvalidContext, "cuCtxSetCurrent: no such context");
  current = context;
  return kSuccess;
}

int sim_cuMemGetInfo_v2(size_t* free, size_t* total) {
  const Lock lock(state().mutex);
  if (!in_context()) return kErrorInvalidContext;
  *total = state().memory;
  *free = free_bytes();
  return kSuccess;
}

int sim_cuMemAlloc_v2(Address* address, size_t bytes) {
  const Lock lock(state().mutex);
  State& s = state();
  if (!in_context()) return kErrorInvalidContext;
  if (const int status = forbid_in_capture("cuMemAlloc"); status != kSuccess) return status;
  trace_call("make", "cuMemAlloc");
  if (bytes == 0) return kErrorInvalidValue;
  if (bytes > free_bytes()) return kErrorOutOfMemory;
  Allocation m = map_memory(bytes);
  if (m.base == 0) return kErrorOutOfMemory;
  // Fresh memory holds anything: here NaN in every float type.
  std::memset(reinterpret_cast<void*>(m.base), 0xFF, bytes);
  m.history.resize((bytes + kGranule - 1) / kGranule);
  m.touched.resize(m.history.size());
  s.used += bytes;
  *address = m.base;
  s.freed.erase(m.base);
  s.device.emplace(m.base, std::move(m));
  return kSuccess;
}

int sim_cuMemFree_v2(Address address) {
  const Lock lock(state().mutex);
  State& s = state();
  if (const int status = forbid_in_capture("cuMemFree"); status != kSuccess) return status;
  const auto at = s.device.find(address);
  if (at == s.device.end())
    return report(kErrorInvalidValue, fmt::format("cuMemFree: {:#x} is {}", address, describe(address)));
  s.used -= at->second.bytes;
  munmap(reinterpret_cast<void*>(address), at->second.mapped);
  s.freed[address] = at->second.bytes;
  s.device.erase(at);
  return kSuccess;
}

int sim_cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
  const Lock lock(state().mutex);
  if (!in_context()) return kErrorInvalidContext;
  if (const int status = forbid_in_capture("cuMemHostAlloc"); status != kSuccess) return status;
  trace_call("make", "cuMemHostAlloc");
  Allocation m = map_memory(bytes);
  if (m.base == 0) return kErrorOutOfMemory;
  *memory = reinterpret_cast<void*>(m.base);
  state().pinned.emplace(m.base, std::move(m));
  return kSuccess;
}
int sim_cuMemFreeHost(void* memory) {
  const Lock lock(state().mutex);
  const auto at = state().pinned.find(reinterpret_cast<Address>(memory));
  if (at == state().pinned.end()) return report(kErrorInvalidValue, "cuMemFreeHost: not pinned memory");
  std::erase_if(state().in_flight, [&](const InFlight& f) { return is_pinned(f.dst ? f.dst : f.src, 1); });
  munmap(memory, at->second.mapped);
  state().pinned.erase(at);
  return kSuccess;
}

int sim_cuMemsetD8Async(Address dst, unsigned char value, size_t bytes, StreamHandle stream) {
  const Lock lock(state().mutex);
  return submit(stream, {"cuMemsetD8Async", [=](std::vector<Access>& touched) {
                           if (const int status = check_range("cuMemsetD8Async", dst, bytes); status != kSuccess)
                             return status;
                           std::memset(reinterpret_cast<void*>(dst), value, bytes);
                           touched.push_back({dst, bytes, true});
                           return static_cast<int>(kSuccess);
                         }});
}

int sim_cuMemcpyHtoDAsync_v2(Address dst, const void* src, size_t bytes, StreamHandle stream) {
  const Lock lock(state().mutex);
  const bool pinned = is_pinned(src, bytes);
  if (!pinned && is_live(stream) && of<SimStream>(stream).capturing)
    return report(kErrorStreamCaptureUnsupported,
                  "cuMemcpyHtoDAsync from pageable memory while the stream is being captured");
  ++state().counters.copies;
  const double begin = is_live(stream) ? std::max(of<SimStream>(stream).free_at, card_time()) : 0;
  const int submitted =
      submit(stream, {"cuMemcpyHtoDAsync",
                      [=](std::vector<Access>& touched) {
                        if (const int status = check_range("cuMemcpyHtoDAsync", dst, bytes); status != kSuccess)
                          return status;
                        std::memcpy(reinterpret_cast<void*>(dst), src, bytes);
                        touched.push_back({dst, bytes, true});
                        // Pageable memory is staged before the call returns.
                        if (pinned) {
                          InFlight f;
                          f.src = src;
                          f.bytes = bytes;
                          state().in_flight.push_back(std::move(f));
                        }
                        return static_cast<int>(kSuccess);
                      },
                      static_cast<double>(bytes) / kLinkBytes});
  if (submitted == kSuccess) trace_span("copy_in", of<SimStream>(stream).id, begin, of<SimStream>(stream).free_at);
  return submitted;
}

int sim_cuMemcpyDtoHAsync_v2(void* dst, Address src, size_t bytes, StreamHandle stream) {
  const Lock lock(state().mutex);
  if (!is_pinned(dst, bytes) && is_live(stream) && of<SimStream>(stream).capturing)
    return report(kErrorStreamCaptureUnsupported,
                  "cuMemcpyDtoHAsync to pageable memory while the stream is being captured");
  ++state().counters.copies;
  return submit(stream, {"cuMemcpyDtoHAsync", [=](std::vector<Access>& touched) {
                           if (const int status = check_range("cuMemcpyDtoHAsync", src, bytes); status != kSuccess)
                             return status;
                           InFlight f;
                           f.dst = dst;
                           f.data.resize(bytes);
                           std::memcpy(f.data.data(), reinterpret_cast<void*>(src), bytes);
                           state().in_flight.push_back(std::move(f));
                           touched.push_back({src, bytes, false});
                           return static_cast<int>(kSuccess);
                         }});
}

int sim_cuMemcpyDtoDAsync_v2(Address dst, Address src, size_t bytes, StreamHandle stream) {
  const Lock lock(state().mutex);
  ++state().counters.copies;
  return submit(stream, {"cuMemcpyDtoDAsync", [=](std::vector<Access>& touched) {
                           for (const Address a : {dst, src})
                             if (const int status = check_range("cuMemcpyDtoDAsync", a, bytes); status != kSuccess)
                               return status;
                           if (dst < src + bytes && src < dst + bytes && dst != src)
                             return report(kErrorInvalidValue, "cuMemcpyDtoDAsync: source and destination overlap");
                           std::memmove(reinterpret_cast<void*>(dst), reinterpret_cast<void*>(src), bytes);
                           touched.push_back({src, bytes, false});
                           touched.push_back({dst, bytes, true});
                           return static_cast<int>(kSuccess);
                         }});
}

int sim_cuStreamCreate(StreamHandle* stream, unsigned) {
  const Lock lock(state().mutex);
  State& s = state();
  if (!in_context()) return kErrorInvalidContext;
  if (s.free_stream_ids.empty()) return kErrorOutOfMemory;
  trace_call("make", "cuStreamCreate");
  auto made = std::make_unique<SimStream>();
  made->id = *s.free_stream_ids.begin();
  s.free_stream_ids.erase(s.free_stream_ids.begin());
  made->clock = s.last_clock[static_cast<size_t>(made->id)];
  s.handles.insert(made.get());
  *stream = reinterpret_cast<StreamHandle>(made.release());
  return kSuccess;
}
int sim_cuStreamDestroy_v2(StreamHandle stream) {
  const Lock lock(state().mutex);
  State& s = state();
  if (!is_live(stream)) return report(kErrorInvalidHandle, "cuStreamDestroy: no such stream");
  s.handles.erase(stream);
  const std::unique_ptr<SimStream> owned(reinterpret_cast<SimStream*>(stream));
  s.last_clock[static_cast<size_t>(owned->id)] = owned->clock;
  s.free_stream_ids.insert(owned->id);
  return kSuccess;
}
int sim_cuStreamSynchronize(StreamHandle stream) {
  if (state().lost) return state().lost;
  const Lock lock(state().mutex);
  if (!is_live(stream)) return report(kErrorInvalidHandle, "cuStreamSynchronize: no such stream");
  auto& s = of<SimStream>(stream);
  if (s.capturing) {
    s.invalidated = true;
    return report(kErrorStreamCaptureUnsupported, "cuStreamSynchronize of a stream that is being captured");
  }
  trace_call("wait", "cuStreamSynchronize");
  wait_until(s.free_at);
  return host_waits(s.clock);
}
int sim_cuEventCreate(EventHandle* event, unsigned flags) {
  const Lock lock(state().mutex);
  if (!in_context()) return kErrorInvalidContext;
  trace_call("make", "cuEventCreate");
  auto made = std::make_unique<SimEvent>();
  made->timing = (flags & kEventDisableTiming) == 0;
  state().handles.insert(made.get());
  *event = reinterpret_cast<EventHandle>(made.release());
  return kSuccess;
}
int sim_cuEventRecord(EventHandle event, StreamHandle stream) {
  if (state().lost) return state().lost;
  const Lock lock(state().mutex);
  if (!is_live(stream) || !is_live(event)) return report(kErrorInvalidHandle, "cuEventRecord: no such stream or event");
  auto& e = of<SimEvent>(event);
  auto& s = of<SimStream>(stream);
  join(s.clock, state().host);
  e.recorded = true;
  e.captured = s.capturing;
  if (s.capturing) record_captured(s, e);
  e.asked = false;
  e.clock = s.clock;
  e.time = std::max(s.free_at, card_time());
  return kSuccess;
}
int sim_cuEventSynchronize(EventHandle event) {
  if (state().lost) return state().lost;
  const Lock lock(state().mutex);
  if (!is_live(event)) return report(kErrorInvalidHandle, "cuEventSynchronize: no such event");
  const auto& e = of<SimEvent>(event);
  if (e.captured) return report(kErrorCapturedEvent, "cuEventSynchronize of an event of a capture");
  trace_call("wait", "cuEventSynchronize");
  if (e.recorded) wait_until(e.time);
  return e.recorded ? host_waits(e.clock) : static_cast<int>(kSuccess);
}
// A card takes its time: the first question after a record is always too early.
int sim_cuEventQuery(EventHandle event) {
  if (state().lost) return state().lost;
  const Lock lock(state().mutex);
  if (!is_live(event)) return report(kErrorInvalidHandle, "cuEventQuery: no such event");
  auto& e = of<SimEvent>(event);
  if (e.captured) return report(kErrorCapturedEvent, "cuEventQuery of an event of a capture");
  if (!e.recorded) return kSuccess;
  if (!std::exchange(e.asked, true)) return kErrorNotReady;
  if (slowness() > 0 && card_time() < e.time) return kErrorNotReady;
  wait_until(e.time);
  return host_waits(e.clock);
}
int sim_cuEventElapsedTime(float* milliseconds, EventHandle begin, EventHandle end) {
  const Lock lock(state().mutex);
  if (!is_live(begin) || !is_live(end)) return kErrorInvalidHandle;
  const auto &b = of<SimEvent>(begin), &e = of<SimEvent>(end);
  if (!b.timing || !e.timing || !b.recorded || !e.recorded) return kErrorInvalidHandle;
  *milliseconds = static_cast<float>(1e3 * (e.time - b.time));
  return kSuccess;
}
int sim_cuEventDestroy_v2(EventHandle event) {
  const Lock lock(state().mutex);
  if (!is_live(event)) return report(kErrorInvalidHandle, "cuEventDestroy: no such event");
  state().handles.erase(event);
  const std::unique_ptr<SimEvent> owned(reinterpret_cast<SimEvent*>(event));
  return kSuccess;
}

// Ranges nest by thread.
thread_local std::vector<std::string> open_ranges;

int sim_nvtxRangePushA(const char* name) {
  const Lock lock(state().mutex);
  open_ranges.push_back(open_ranges.empty() ? name : open_ranges.back() + " > " + name);
  ++state().ranges[open_ranges.back()];
  ++state().open_ranges;
  return static_cast<int>(open_ranges.size()) - 1;
}
int sim_nvtxRangePop() {
  const Lock lock(state().mutex);
  if (open_ranges.empty()) return report(-1, "nvtxRangePop: this thread has no range open");
  open_ranges.pop_back();
  --state().open_ranges;
  return static_cast<int>(open_ranges.size());
}

Ranges take_ranges() {
  const Lock lock(state().mutex);
  return {std::exchange(state().ranges, {}), state().open_ranges};
}

Api simulator_api() {
  Api api;
#define LATHE_FILL(result, name, params) api.name = sim_##name;
  LATHE_CUDA_DRIVER(LATHE_FILL)
  LATHE_CUDA_NVRTC(LATHE_FILL)
  LATHE_CUDA_CUBLASLT(LATHE_FILL)
  LATHE_CUDA_CUDNN(LATHE_FILL)
  LATHE_CUDA_NVTX(LATHE_FILL)
#undef LATHE_FILL
  return api;
}

}  // namespace lathe::sim
