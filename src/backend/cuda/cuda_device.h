// A device of the cuda backend: primary context, a stream per lane, the arena as device allocations, staging in pinned
// host memory, whole Programs as CUDA graphs.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/cuda_api.h"
#include "backend/cuda/cuda_library.h"
#include "backend/kernels/call.h"

namespace lathe {

class CudaDevice;

class CudaEvent final : public Event {
 public:
  CudaEvent(CudaDevice&, unsigned flags);
  ~CudaEvent() override;
  bool reached() override;
  cuda::EventHandle handle() const { return handle_; }

 private:
  CudaDevice& device_;
  cuda::EventHandle handle_ = nullptr;
};

class CudaStream final : public Stream {
 public:
  explicit CudaStream(CudaDevice&);
  ~CudaStream() override;

  void copy_in(const Buffer& dst, const void* src) override;
  void copy_out(void* dst, const Buffer& src) override;
  void copy(const Buffer& dst, const Buffer& src) override;
  void record(Event&) override;
  void wait(Event&) override;
  void synchronize() override;
  cuda::StreamHandle handle() const { return handle_; }
  CudaDevice& device() const { return device_; }

 private:
  CudaDevice& device_;
  cuda::StreamHandle handle_ = nullptr;
};

// A named range for profilers; nothing where NVTX is absent.
class CudaRange {
 public:
  CudaRange(const cuda::Api& api, const char* name) : api_(api) {
    if (api_.nvtxRangePushA) api_.nvtxRangePushA(name);
  }
  ~CudaRange() {
    if (api_.nvtxRangePushA) api_.nvtxRangePop();
  }
  CudaRange(const CudaRange&) = delete;
  CudaRange& operator=(const CudaRange&) = delete;

 private:
  const cuda::Api& api_;
};

class CudaDevice final : public Device {
 public:
  // DeviceError when there is no device of that number. `cache_folder` of compiled kernels; "": none.
  CudaDevice(const cuda::Api&, int index, Target, const std::string& cache_folder);
  ~CudaDevice() override;

  const Target& target() const override { return target_; }
  int64_t free_memory() override;
  void allocate(std::span<const int64_t> segment_bytes) override;
  Stream& stream(Lane lane) override;
  std::unique_ptr<Event> make_event() override;
  std::byte* allocate_staging(int64_t bytes) override;
  std::unique_ptr<Recording> record(const std::string& name, const std::function<void(Stream&)>& body) override;

  const cuda::Api& api() const { return api_; }
  CudaLibrary& library() { return *library_; }
  // Handles of the libraries, made at first use. DeviceError when the library is missing.
  cuda::LtHandle cublaslt();
  cuda::DnnHandle cudnn();
  // Makes the context current on the calling thread; every entry from outside does.
  void enter() const;
  void enter_if_alive() const;  // for destructors
  // DriverError that names the card and the Program that it was given last: work fails when the host comes to wait for
  // it, not where it was launched.
  void check(int status, const char* call) const;
  void set_running(const std::string& program) { running_ = &program; }  // kept as long as it may fail
  const std::array<int64_t, 3>& largest_grid() const { return largest_grid_; }
  cuda::Address address(const Buffer&) const;  // InternalError when the buffer does not lie within the arena

  // A node for which the library has nothing, in words: notes() gives one line per library.
  void note(const std::string& library, const std::string& node);
  std::vector<std::string> notes() const override;

  // Launches of the calls with their arguments in place. `name` appears in profiles. DeviceError when a grid has more
  // blocks than the device runs in one launch.
  std::unique_ptr<Kernel> bind(std::string_view name, std::vector<KernelCall>, const KernelArgs&);

 private:
  const cuda::Api& api_;
  cuda::DeviceId id_ = 0;
  Target target_;
  std::string label_;  // "cuda:0 (NVIDIA A100)"
  std::array<int64_t, 3> largest_grid_{};
  const std::string* running_ = nullptr;
  cuda::Context context_ = nullptr;
  std::unique_ptr<CudaLibrary> library_;
  std::unique_ptr<CudaStream> compute_, transfer_, communication_;  // the last one from its first use on
  std::vector<cuda::Address> segments_;
  std::vector<int64_t> segment_bytes_;
  std::vector<void*> staging_;
  struct Lacking {
    int64_t nodes = 0;
    std::string first;
  };
  std::map<std::string, Lacking> lacking_;  // by library
  cuda::LtHandle cublaslt_ = nullptr;
  cuda::DnnHandle cudnn_ = nullptr;
};

inline CudaDevice& as_cuda(Device& d) { return static_cast<CudaDevice&>(d); }
inline CudaStream& as_cuda(Stream& s) { return static_cast<CudaStream&>(s); }

}  // namespace lathe
