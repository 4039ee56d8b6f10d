#include "backend/cuda/cuda_device.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "backend/cuda/cuda_grid.h"
#include "backend/cuda/cuda_info.h"
#include "base/error.h"

namespace lathe {
namespace {

size_t bytes_of(const Buffer& b) { return static_cast<size_t>(b.bytes); }

// A driver call while Programs run.
#define LATHE_ON_CARD(device, call) (device).check((device).api().call, #call)

CudaInfo find_device(const cuda::Api& api, int index) {
  std::string reason;
  const std::vector<CudaInfo> all = cuda_devices(api, &reason);
  if (all.empty()) throw DeviceError("cuda: " + reason);
  if (index < 0 || index >= static_cast<int>(all.size()))
    throw DeviceError(fmt::format("cuda:{}: there {} {} device{}; `lathe devices` lists them", index,
                                  all.size() == 1 ? "is" : "are", all.size(), all.size() == 1 ? "" : "s"));
  return all[static_cast<size_t>(index)];
}

// A bound node: its launches in order.
class CudaKernel final : public Kernel {
 public:
  CudaKernel(CudaDevice& device, std::string_view name, std::vector<KernelCall> calls, const KernelArgs& buffers)
      : device_(device), name_(name) {
    for (KernelCall& planned : calls) {
      const KernelCall call = fold_grid(std::move(planned), device.largest_grid());
      Launch& l = launches_.emplace_back();
      l.function = device.library().add(call.source, call.name);
      for (const CallArg& a : call.args) add_argument(l, a, buffers);
      for (uint64_t& v : l.values) l.params.push_back(&v);
      for (size_t d = 0; d < 3; ++d) l.grid[d] = static_cast<unsigned>(call.groups[d]);
      l.block = static_cast<unsigned>(call.group_size);
    }
  }

  void run(Stream& stream) override {
    const cuda::Api& api = device_.api();
    device_.enter();
    const CudaRange range(api, name_.c_str());
    for (Launch& l : launches_) {
      if (!*l.function) device_.library().build_pending();
      LATHE_CUDA(api, cuLaunchKernel(*l.function, l.grid[0], l.grid[1], l.grid[2], l.block, 1, 1, 0,
                                     as_cuda(stream).handle(), l.params.data(), nullptr));
    }
  }

 private:
  struct Launch {
    const cuda::Function* function = nullptr;
    std::vector<uint64_t> values;  // pointers and integers
    std::vector<void*> params;     // to the values
    std::array<unsigned, 3> grid{1, 1, 1};
    unsigned block = 1;
  };

  void add_argument(Launch& l, const CallArg& a, const KernelArgs& buffers) const {
    if (a.kind != CallArg::Kind::integer) {
      const Buffer& b = a.kind == CallArg::Kind::out  ? buffers.out.at(static_cast<size_t>(a.index))
                        : a.kind == CallArg::Kind::in ? buffers.in.at(static_cast<size_t>(a.index))
                                                      : buffers.workspace;
      const cuda::Address address = device_.address(b);
      LATHE_CHECK(address % static_cast<uint64_t>(size_of(a.dtype)) == 0, "address {} of {}", address,
                  to_string(a.dtype));
      l.values.push_back(address);
    }
    l.values.push_back(static_cast<uint64_t>(a.value));
  }

  CudaDevice& device_;
  std::string name_;
  std::vector<Launch> launches_;
};

class CudaRecording final : public Recording {
 public:
  CudaRecording(CudaDevice& device, std::string name, cuda::GraphExec exec)
      : device_(device), name_(std::move(name)), exec_(exec) {}
  ~CudaRecording() override {
    device_.enter_if_alive();
    device_.api().cuGraphExecDestroy(exec_);
  }
  void launch(Stream& stream) override {
    device_.enter();
    device_.set_running(name_);
    const CudaRange range(device_.api(), name_.c_str());
    ++device_.counters().launches;
    LATHE_ON_CARD(device_, cuGraphLaunch(exec_, as_cuda(stream).handle()));
  }

 private:
  CudaDevice& device_;
  std::string name_;
  cuda::GraphExec exec_;
};

}  // namespace

CudaEvent::CudaEvent(CudaDevice& device, unsigned flags) : device_(device) {
  ++device_.counters().allocations;
  LATHE_CUDA(device_.api(), cuEventCreate(&handle_, flags));
}
CudaEvent::~CudaEvent() { device_.api().cuEventDestroy_v2(handle_); }

bool CudaEvent::reached() {
  device_.enter();
  const int status = device_.api().cuEventQuery(handle_);
  if (status == cuda::kErrorNotReady) return false;
  device_.check(status, "cuEventQuery");
  return true;
}

CudaStream::CudaStream(CudaDevice& device) : device_(device) {
  ++device_.counters().allocations;
  LATHE_CUDA(device_.api(), cuStreamCreate(&handle_, cuda::kStreamNonBlocking));
}
CudaStream::~CudaStream() { device_.api().cuStreamDestroy_v2(handle_); }

void CudaStream::copy_in(const Buffer& dst, const void* src) {
  if (dst.bytes == 0) return;
  device_.enter();
  LATHE_ON_CARD(device_, cuMemcpyHtoDAsync_v2(device_.address(dst), src, bytes_of(dst), handle_));
}

void CudaStream::copy_out(void* dst, const Buffer& src) {
  if (src.bytes == 0) return;
  device_.enter();
  LATHE_ON_CARD(device_, cuMemcpyDtoHAsync_v2(dst, device_.address(src), bytes_of(src), handle_));
}

void CudaStream::copy(const Buffer& dst, const Buffer& src) {
  if (src.bytes == 0) return;
  LATHE_CHECK(dst.bytes >= src.bytes, "{} bytes into {}", src.bytes, dst.bytes);
  device_.enter();
  LATHE_ON_CARD(device_, cuMemcpyDtoDAsync_v2(device_.address(dst), device_.address(src), bytes_of(src), handle_));
}

void CudaStream::record(Event& event) {
  device_.enter();
  LATHE_ON_CARD(device_, cuEventRecord(static_cast<CudaEvent&>(event).handle(), handle_));
}

// An event that was never recorded lets the stream pass.
void CudaStream::wait(Event& event) {
  device_.enter();
  LATHE_ON_CARD(device_, cuStreamWaitEvent(handle_, static_cast<CudaEvent&>(event).handle(), 0));
}

void CudaStream::synchronize() {
  device_.enter();
  ++device_.counters().blocking;
  LATHE_ON_CARD(device_, cuStreamSynchronize(handle_));
}

CudaDevice::CudaDevice(const cuda::Api& api, int index, Target target, const std::string& cache_folder)
    : api_(api), target_(std::move(target)) {
  const CudaInfo info = find_device(api, index);
  id_ = info.id;
  label_ = fmt::format("cuda:{} ({})", index, info.name);
  largest_grid_ = info.largest_grid;
  LATHE_CUDA(api_, cuDevicePrimaryCtxRetain(&context_, id_));
  enter();
  library_ = std::make_unique<CudaLibrary>(api_, info.architecture(), BinaryCache(cache_folder), counters());
  compute_ = std::make_unique<CudaStream>(*this);
  transfer_ = std::make_unique<CudaStream>(*this);
}

CudaDevice::~CudaDevice() {
  api_.cuCtxSetCurrent(context_);
  api_.cuStreamSynchronize(compute_->handle());
  api_.cuStreamSynchronize(transfer_->handle());
  if (communication_) api_.cuStreamSynchronize(communication_->handle());
  if (cublaslt_) api_.cublasLtDestroy(cublaslt_);
  if (cudnn_) api_.cudnnDestroy(cudnn_);
  library_.reset();
  compute_.reset();
  transfer_.reset();
  communication_.reset();
  for (const cuda::Address a : segments_) api_.cuMemFree_v2(a);
  for (void* p : staging_) api_.cuMemFreeHost(p);
  api_.cuDevicePrimaryCtxRelease_v2(id_);
}

void CudaDevice::enter() const { check(api_.cuCtxSetCurrent(context_), "cuCtxSetCurrent"); }

void CudaDevice::enter_if_alive() const { api_.cuCtxSetCurrent(context_); }

void CudaDevice::check(int status, const char* call) const {
  if (status == cuda::kSuccess) return;
  throw DriverError(fmt::format("{}: {}{}", label_, cuda::driver_failure(api_, status, call),
                                running_ ? fmt::format("; Program \"{}\" was running", *running_) : ""));
}

Stream& CudaDevice::stream(Lane lane) {
  if (lane != Lane::communication) return lane == Lane::compute ? *compute_ : *transfer_;
  if (!communication_) {
    enter();
    communication_ = std::make_unique<CudaStream>(*this);
  }
  return *communication_;
}

int64_t CudaDevice::free_memory() {
  enter();
  size_t free = 0, total = 0;
  check(api_.cuMemGetInfo_v2(&free, &total), "cuMemGetInfo");
  return static_cast<int64_t>(free);
}

void CudaDevice::allocate(std::span<const int64_t> segment_bytes) {
  LATHE_USER_CHECK(segments_.empty(), "{}: expected one allocation of the arena, got a second", target_.name);
  const int64_t needed = std::accumulate(segment_bytes.begin(), segment_bytes.end(), int64_t{0}), free = free_memory();
  const auto refuse = [&](const std::string& why) {
    throw DeviceError(fmt::format("{}: the plan needs {} bytes on the card, {} of its {} are free{}", label_, needed,
                                  free, target_.memory, why));
  };
  if (needed > free) refuse("");
  for (const int64_t bytes : segment_bytes) {
    cuda::Address address = 0;
    const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    const int status = api_.cuMemAlloc_v2(&address, size);
    if (status != cuda::kSuccess) {
      const char* name = nullptr;
      api_.cuGetErrorName(status, &name);
      refuse(fmt::format("; a segment of {} bytes cannot be had: {}", bytes, name ? name : "?"));
    }
    ++counters().allocations;
    segments_.push_back(address);
    segment_bytes_.push_back(bytes);
    LATHE_CUDA(api_, cuMemsetD8Async(address, 0, size, compute_->handle()));
  }
  compute_->synchronize();
}

std::unique_ptr<Event> CudaDevice::make_event() {
  enter();
  return std::make_unique<CudaEvent>(*this, cuda::kEventDisableTiming);
}

std::byte* CudaDevice::allocate_staging(int64_t bytes) {
  enter();
  void* memory = nullptr;
  LATHE_CUDA(api_, cuMemHostAlloc(&memory, static_cast<size_t>(std::max<int64_t>(bytes, 1)), cuda::kHostAllocPortable));
  ++counters().allocations;
  staging_.push_back(memory);
  return static_cast<std::byte*>(memory);
}

std::unique_ptr<Recording> CudaDevice::record(const std::string& name, const std::function<void(Stream&)>& body) {
  enter();
  // Loading code is not allowed while a stream is being captured.
  library_->build_pending();
  const CudaRange range(api_, ("recording " + name).c_str());
  LATHE_CUDA(api_, cuStreamBeginCapture_v2(compute_->handle(), cuda::kCaptureThreadLocal));
  cuda::GraphHandle graph = nullptr;
  try {
    body(*compute_);
  } catch (...) {
    api_.cuStreamEndCapture(compute_->handle(), &graph);
    if (graph) api_.cuGraphDestroy(graph);
    throw;
  }
  LATHE_CUDA(api_, cuStreamEndCapture(compute_->handle(), &graph));
  cuda::GraphExec exec = nullptr;
  ++counters().allocations;
  const int status = api_.cuGraphInstantiateWithFlags(&exec, graph, 0);
  api_.cuGraphDestroy(graph);
  cuda::check_driver(api_, status, "cuGraphInstantiateWithFlags");
  return std::make_unique<CudaRecording>(*this, name, exec);
}

cuda::LtHandle CudaDevice::cublaslt() {
  if (!api_.cublaslt_missing.empty()) throw DeviceError("cuda: " + api_.cublaslt_missing);
  if (!cublaslt_) {
    ++counters().allocations;
    LATHE_CUBLASLT(api_, cublasLtCreate(&cublaslt_));
  }
  return cublaslt_;
}

cuda::DnnHandle CudaDevice::cudnn() {
  if (!api_.cudnn_missing.empty()) throw DeviceError("cuda: " + api_.cudnn_missing);
  if (!cudnn_) {
    ++counters().allocations;
    LATHE_CUDNN(api_, cudnnCreate(&cudnn_));
    LATHE_CUDNN(api_, cudnnSetStream(cudnn_, compute_->handle()));
  }
  return cudnn_;
}

cuda::Address CudaDevice::address(const Buffer& b) const {
  const size_t s = static_cast<size_t>(b.segment);
  LATHE_USER_CHECK(!segments_.empty(), "{}: expected Device::allocate() before a Program is bound", target_.name);
  LATHE_CHECK(b.segment >= 0 && s < segments_.size() && b.offset >= 0 && b.bytes >= 0 &&
                  b.offset + b.bytes <= segment_bytes_[s],
              "bytes {} + {} of segment {} are outside of the arena", b.offset, b.bytes, b.segment);
  return segments_[s] + static_cast<uint64_t>(b.offset);
}

void CudaDevice::note(const std::string& library, const std::string& node) {
  Lacking& l = lacking_[library];
  if (l.nodes++ == 0) l.first = node;
}

std::vector<std::string> CudaDevice::notes() const {
  std::vector<std::string> out;
  for (const auto& [library, l] : lacking_)
    out.push_back(fmt::format("{} has nothing for {} node{}, own kernels run ({}{})", library, l.nodes,
                              l.nodes == 1 ? "" : "s", l.nodes == 1 ? "" : "the first: ", l.first));
  return out;
}

std::unique_ptr<Kernel> CudaDevice::bind(std::string_view name, std::vector<KernelCall> calls, const KernelArgs& args) {
  enter();
  return std::make_unique<CudaKernel>(*this, name, std::move(calls), args);
}

}  // namespace lathe
