// A device of the opencl backend: context, an in-order queue per lane, the arena as cl_mem segments, staging in pinned
// host memory.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/kernels/product_calls.h"
#include "backend/opencl/kernel_library.h"
#include "backend/opencl/opencl_info.h"
#include "backend/traced_device.h"

namespace lathe {

class OpenClDevice;

class OpenClEvent final : public Event {
 public:
  bool reached() override;
  ClEvent event;  // of the latest record(); none before
};

// When a command ran, in the device's nanoseconds.
struct OpenClSpan {
  std::string what;  // "copy_in", "copy_out", "copy" or the name of a kernel
  Lane lane = Lane::compute;
  uint64_t start = 0, end = 0;
  uint64_t queued = 0;
  int32_t label = 0;     // of the Trace
  int64_t given_at = 0;  // of the host, by the Trace's clock, when the command was in the queue
};

class OpenClStream final : public Stream {
 public:
  OpenClStream(OpenClDevice&, Lane, cl_context, cl_device_id, bool trace);

  void copy_in(const Buffer& dst, const void* src) override;
  void copy_out(void* dst, const Buffer& src) override;
  void copy(const Buffer& dst, const Buffer& src) override;
  void record(Event&) override;
  void wait(Event&) override;
  void synchronize() override;
  cl_command_queue queue() const { return queue_.get(); }
  void launch(cl_kernel, const std::string& name, const size_t* global, const size_t* local);
  void append_spans(std::vector<OpenClSpan>&) const;  // of a traced stream, after synchronize()

 private:
  class Traced;
  OpenClDevice& device_;
  Lane lane_;
  bool trace_;     // keep the times of all commands
  bool profiles_;  // the queue knows them
  ClQueue queue_;
  struct Kept {
    std::string what;
    ClEvent event;
    int32_t label;
    int64_t given_at;
  };
  std::vector<Kept> events_;
};

struct OpenClDeviceOptions {
  int index = 0;
  std::optional<LaunchStyle> style;   // of the kernels; usual_style() by default
  std::optional<ProductTiles> tiles;  // by default those of the class of the device
  std::string cache_folder;           // of compiled programs; "": none
  bool pocl_files = false;            // programs are cached as the files of PoCL's folder, not as binaries
  bool trace = false;                 // keep the times of all commands
  std::string trace_file;             // where they are written when the device is closed; "": nowhere
};

class OpenClDevice final : public Device, public TracedDevice {
 public:
  // DeviceError when there is no device of that number, or it cannot be used.
  OpenClDevice(const OpenClDeviceOptions&, Target);
  ~OpenClDevice() override;

  const Target& target() const override { return target_; }
  void allocate(std::span<const int64_t> segment_bytes) override;
  Stream& stream(Lane lane) override;
  std::unique_ptr<Event> make_event() override { return std::make_unique<OpenClEvent>(); }
  std::byte* allocate_staging(int64_t bytes) override;

  KernelLibrary& library() { return library_; }
  LaunchStyle style() const { return tiles_.style; }
  const ProductTiles& tiles() const { return tiles_; }
  void add_spans(Trace&) override;
  std::vector<OpenClSpan> spans() const;  // when traced and all streams have been waited for
  const OpenClLimits& limits() const { return limits_; }
  cl_device_id id() const { return id_.device; }
  cl_mem segment(const Buffer&) const;  // InternalError when the buffer does not lie within the arena

  // Kernels of the calls with their arguments in place; compiled at the first run().
  std::unique_ptr<Kernel> bind(std::vector<KernelCall>, const KernelArgs&);

 private:
  void write_trace() const;

  OpenClDeviceId id_;
  Target target_;
  bool trace_;  // keep the times of all commands
  std::string trace_file_;
  ClContext context_;
  OpenClLimits limits_;
  ProductTiles tiles_;
  KernelLibrary library_;
  OpenClStream compute_, transfer_;
  std::unique_ptr<OpenClStream> communication_;  // from its first use on
  std::vector<ClBuffer> segments_;
  std::vector<int64_t> segment_bytes_;
  struct Staging {
    ClBuffer buffer;
    void* mapped = nullptr;
  };
  std::vector<Staging> staging_;
  std::vector<std::unique_ptr<std::byte[]>> plain_staging_;  // larger than the largest allocation
};

}  // namespace lathe
