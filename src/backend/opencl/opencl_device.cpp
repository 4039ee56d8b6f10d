#include "backend/opencl/opencl_device.h"

#include <algorithm>
#include <cstdio>
#include <limits>
#include <numeric>

#include "base/error.h"

namespace lathe {
namespace {

size_t bytes_of(const Buffer& b) { return static_cast<size_t>(b.bytes); }
size_t offset_of(const Buffer& b) { return static_cast<size_t>(b.offset); }

OpenClDeviceId find_device(int index) {
  std::string reason;
  const std::vector<OpenClDeviceId> all = opencl_devices(&reason);
  if (all.empty()) throw DeviceError("opencl: " + reason);
  if (index < 0 || index >= static_cast<int>(all.size()))
    throw DeviceError(fmt::format("opencl:{}: there {} {} device{}; `lathe devices` lists them", index,
                                  all.size() == 1 ? "is" : "are", all.size(), all.size() == 1 ? "" : "s"));
  const OpenClDeviceId id = all[static_cast<size_t>(index)];
  if (const std::string why = opencl_unusable(id.device); !why.empty())
    throw DeviceError(fmt::format("opencl:{} ({}): {}", index, device_text(id.device, CL_DEVICE_NAME), why));
  return id;
}

ClContext make_context(OpenClDeviceId id) {
  const cl_context_properties properties[] = {CL_CONTEXT_PLATFORM, reinterpret_cast<cl_context_properties>(id.platform),
                                              0};
  cl_int status = CL_SUCCESS;
  ClContext context(opencl_api().clCreateContext(properties, 1, &id.device, nullptr, nullptr, &status));
  check_opencl(status, "clCreateContext");
  return context;
}

// Narrow: two accumulators per row, two vectors of b and one of a must fit the registers, 32 with 64-byte vectors, else
// 16; attention with 32 rows is 7 % faster than with 16 (tune-device, AVX-512). Wide: smaller tiles where a group or
// its memory is small.
ProductTiles default_tiles(cl_device_id device, LaunchStyle style, const OpenClLimits& limits) {
  ProductTiles t;
  t.style = style;
  t.vector_bytes = 4 * static_cast<int>(device_number<cl_uint>(device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT));
  t.micro_rows = t.vector_bytes >= 64 ? 8 : 6;
  t.attention_rows = style == LaunchStyle::narrow ? 32 : 16;
  if (!check_tiles(t, limits.group, limits.local_bytes).empty()) t.tile_rows = t.tile_cols = 32;
  if (!check_tiles(t, limits.group, limits.local_bytes).empty()) t.tile_rows = t.tile_cols = t.wide_depth = 16;
  return t;
}

// A bound node: its launches in order. Compiled when all are bound, which is why the texts of all Programs go into one
// build; run() only enqueues.
class OpenClKernel final : public Kernel {
 public:
  OpenClKernel(OpenClDevice& device, std::vector<KernelCall> calls, const KernelArgs& buffers) : device_(device) {
    for (KernelCall& call : calls) {
      Launch l;
      l.text = device.library().add(call.source);
      l.name = std::move(call.name);
      for (const CallArg& a : call.args) l.args.push_back(place(a, buffers));
      for (size_t d = 0; d < 3; ++d) l.global[d] = static_cast<size_t>(call.groups[d]);
      l.local[0] = static_cast<size_t>(call.group_size);
      l.global[0] *= l.local[0];
      launches_.push_back(std::move(l));
    }
  }

  void prepare() override {
    for (Launch& l : launches_)
      if (!l.kernel) prepare(l);
  }

  // Users that bind and run by themselves leave prepare() out.
  void run(Stream& stream) override {
    prepare();
    for (Launch& l : launches_) static_cast<OpenClStream&>(stream).launch(l.kernel.get(), l.name, l.global, l.local);
    if (!ran_) device_.library().ran_first_time(static_cast<int64_t>(launches_.size()));
    ran_ = true;
  }

 private:
  struct Arg {
    cl_mem base = nullptr;  // null: only the integer
    cl_long integer = 0;
  };
  struct Launch {
    const KernelLibrary::Text* text = nullptr;
    std::string name;
    std::vector<Arg> args;
    ClKernel kernel;
    size_t global[3] = {1, 1, 1}, local[3] = {1, 1, 1};
  };

  Arg place(const CallArg& a, const KernelArgs& buffers) const {
    if (a.kind == CallArg::Kind::integer) return {nullptr, a.value};
    const Buffer& b = a.kind == CallArg::Kind::out  ? buffers.out.at(static_cast<size_t>(a.index))
                      : a.kind == CallArg::Kind::in ? buffers.in.at(static_cast<size_t>(a.index))
                                                    : buffers.workspace;
    const int64_t size = size_of(a.dtype);
    LATHE_CHECK(b.offset % size == 0, "offset {} is no multiple of {}", b.offset, size);
    return {device_.segment(b), b.offset / size + a.value};
  }

  void prepare(Launch& l) {
    const OpenClApi& cl = opencl_api();
    const int64_t programs = device_.library().programs();
    l.kernel = device_.library().make(l.text, l.name);
    device_.counters().allocations += 1 + device_.library().programs() - programs;
    const OpenClLimits& limits = device_.limits();
    cl_ulong local = 0;
    LATHE_CL(cl.clGetKernelWorkGroupInfo(l.kernel.get(), device_.id(), CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local,
                                         nullptr));
    if (static_cast<int64_t>(l.local[0]) > limits.group || static_cast<int64_t>(local) > limits.local_bytes)
      throw DeviceError(
          fmt::format("opencl: {} needs groups of {} work-items and {} bytes of local memory, the device has {} and {}",
                      l.name, l.local[0], local, limits.group, limits.local_bytes));
    cl_uint i = 0;
    for (const Arg& a : l.args) {
      if (a.base) LATHE_CL(cl.clSetKernelArg(l.kernel.get(), i++, sizeof a.base, &a.base));
      LATHE_CL(cl.clSetKernelArg(l.kernel.get(), i++, sizeof a.integer, &a.integer));
    }
  }

  OpenClDevice& device_;
  std::vector<Launch> launches_;
  bool ran_ = false;
};

}  // namespace

// Where a command leaves its event: nowhere, or in the trace.
class OpenClStream::Traced {
 public:
  Traced(OpenClStream& stream, std::string_view what) : stream_(stream), what_(what) {}
  ~Traced() {
    const Trace* trace = Trace::of_process();
    if (event_)
      stream_.events_.push_back({std::string(what_), ClEvent(event_), trace ? trace->current() : 0, Trace::now()});
  }
  cl_event* slot() {
    const Trace* trace = Trace::of_process();
    return stream_.trace_ || (stream_.profiles_ && trace && trace->on()) ? &event_ : nullptr;
  }

 private:
  OpenClStream& stream_;
  std::string_view what_;
  cl_event event_ = nullptr;
};

bool OpenClEvent::reached() {
  if (!event) return true;
  cl_int status = CL_COMPLETE;
  LATHE_CL(
      opencl_api().clGetEventInfo(event.get(), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr));
  if (status < 0) check_opencl(status, "a command");
  return status == CL_COMPLETE;
}

OpenClStream::OpenClStream(OpenClDevice& device, Lane lane, cl_context context, cl_device_id id, bool trace)
    : device_(device), lane_(lane), trace_(trace), profiles_(trace || Trace::of_process()) {
  cl_int status = CL_SUCCESS;
  ++device.counters().allocations;
  queue_ = ClQueue(opencl_api().clCreateCommandQueue(context, id, profiles_ ? CL_QUEUE_PROFILING_ENABLE : 0, &status));
  check_opencl(status, "clCreateCommandQueue");
}

void OpenClStream::copy_in(const Buffer& dst, const void* src) {
  if (dst.bytes == 0) return;
  Traced traced(*this, "copy_in");
  LATHE_CL(opencl_api().clEnqueueWriteBuffer(queue(), device_.segment(dst), CL_FALSE, offset_of(dst), bytes_of(dst),
                                             src, 0, nullptr, traced.slot()));
}

void OpenClStream::copy_out(void* dst, const Buffer& src) {
  if (src.bytes == 0) return;
  Traced traced(*this, "copy_out");
  LATHE_CL(opencl_api().clEnqueueReadBuffer(queue(), device_.segment(src), CL_FALSE, offset_of(src), bytes_of(src), dst,
                                            0, nullptr, traced.slot()));
}

void OpenClStream::copy(const Buffer& dst, const Buffer& src) {
  if (src.bytes == 0) return;
  LATHE_CHECK(dst.bytes >= src.bytes, "{} bytes into {}", src.bytes, dst.bytes);
  Traced traced(*this, "copy");
  LATHE_CL(opencl_api().clEnqueueCopyBuffer(queue(), device_.segment(src), device_.segment(dst), offset_of(src),
                                            offset_of(dst), bytes_of(src), 0, nullptr, traced.slot()));
}

void OpenClStream::launch(cl_kernel kernel, const std::string& name, const size_t* global, const size_t* local) {
  ++device_.counters().launches;
  Traced traced(*this, name);
  LATHE_CL(opencl_api().clEnqueueNDRangeKernel(queue(), kernel, 3, nullptr, global, local, 0, nullptr, traced.slot()));
}

void OpenClStream::append_spans(std::vector<OpenClSpan>& spans) const {
  for (const auto& [what, event, label, given_at] : events_) {
    cl_ulong queued = 0, start = 0, end = 0;
    const OpenClApi& cl = opencl_api();
    LATHE_CL(cl.clGetEventProfilingInfo(event.get(), CL_PROFILING_COMMAND_QUEUED, sizeof queued, &queued, nullptr));
    LATHE_CL(cl.clGetEventProfilingInfo(event.get(), CL_PROFILING_COMMAND_START, sizeof start, &start, nullptr));
    LATHE_CL(cl.clGetEventProfilingInfo(event.get(), CL_PROFILING_COMMAND_END, sizeof end, &end, nullptr));
    spans.push_back({what, lane_, start, end, queued, label, given_at});
  }
}

void OpenClStream::record(Event& event) {
  cl_event marker = nullptr;
  LATHE_CL(opencl_api().clEnqueueMarkerWithWaitList(queue(), 0, nullptr, &marker));
  static_cast<OpenClEvent&>(event).event = ClEvent(marker);
  // Another queue that waits for the marker makes progress only if it has left this one.
  LATHE_CL(opencl_api().clFlush(queue()));
}

void OpenClStream::wait(Event& event) {
  const cl_event marker = static_cast<OpenClEvent&>(event).event.get();
  if (!marker) return;
  LATHE_CL(opencl_api().clEnqueueBarrierWithWaitList(queue(), 1, &marker, nullptr));
}

void OpenClStream::synchronize() {
  ++device_.counters().blocking;
  LATHE_CL(opencl_api().clFinish(queue()));
  if (lane_ == Lane::compute) device_.library().keep_now_and_then();
}

OpenClDevice::OpenClDevice(const OpenClDeviceOptions& options, Target target)
    : id_(find_device(options.index)),
      target_(std::move(target)),
      trace_(options.trace),
      trace_file_(options.trace_file),
      context_(make_context(id_)),
      limits_(opencl_limits(id_.device)),
      tiles_(options.tiles ? *options.tiles
                           : default_tiles(id_.device, options.style.value_or(usual_style(id_.device)), limits_)),
      library_(context_.get(), id_.device, BinaryCache(options.cache_folder), options.pocl_files),
      compute_(*this, Lane::compute, context_.get(), id_.device, options.trace),
      transfer_(*this, Lane::transfer, context_.get(), id_.device, options.trace) {
  const int items = group_items(tiles_.style);
  if (limits_.group < items)
    throw DeviceError(fmt::format("opencl: this form of the kernels needs groups of {} work-items, the device runs {}",
                                  items, limits_.group));
  tiles_.local_bytes = static_cast<int>(std::min<int64_t>(limits_.local_bytes, 1 << 30));
  const std::string reason = check_tiles(tiles_, limits_.group, limits_.local_bytes);
  LATHE_USER_CHECK(reason.empty(), "opencl: tiles: {}", reason);
}

OpenClDevice::~OpenClDevice() {
  const OpenClApi& cl = opencl_api();
  cl.clFinish(compute_.queue());
  if (communication_) cl.clFinish(communication_->queue());
  library_.keep();
  for (const Staging& s : staging_)
    cl.clEnqueueUnmapMemObject(transfer_.queue(), s.buffer.get(), s.mapped, 0, nullptr, nullptr);
  cl.clFinish(transfer_.queue());
  if (!trace_file_.empty()) write_trace();
  try {
    if (Trace* trace = Trace::of_process(); trace && trace->on()) add_spans(*trace);
  } catch (const Error&) {
    // A lost device has no times; the trace shows the rest.
  }
}

// In the form that chrome://tracing and Perfetto show: microseconds, one line per command, a row for each queue.
void OpenClDevice::write_trace() const {
  std::FILE* file = std::fopen(trace_file_.c_str(), "w");
  if (!file) return;
  const char* before = "[\n";
  try {
    for (const OpenClSpan& s : spans()) {
      const std::string line = fmt::format(
          "{}{{\"ph\": \"X\", \"pid\": 0, \"tid\": \"{}\", \"name\": \"{}\", \"ts\": {:.3f}, \"dur\": {:.3f}}}", before,
          to_string(s.lane), s.what, static_cast<double>(s.start) * 1e-3, static_cast<double>(s.end - s.start) * 1e-3);
      std::fputs(line.c_str(), file);
      before = ",\n";
    }
  } catch (const Error&) {
    // A lost device reports no times.
  }
  std::fputs("\n]\n", file);
  std::fclose(file);
}

void OpenClDevice::add_spans(Trace& trace) {
  const std::vector<OpenClSpan> all = spans();
  if (all.empty()) return;
  // The host's clock and the device's differ by the least that a command seemed to need to get into the queue.
  int64_t ahead = std::numeric_limits<int64_t>::max();
  for (const OpenClSpan& s : all) ahead = std::min(ahead, s.given_at - static_cast<int64_t>(s.queued));
  const int32_t lanes[] = {trace.lane("compute queue"), trace.lane("transfer queue"),
                           communication_ ? trace.lane("communication queue") : 0};
  // Several launches of one node follow each other in its queue.
  const auto same_node = [&](size_t a, size_t b) {
    return b < all.size() && all[a].label > 0 && all[a].label == all[b].label && all[a].lane == all[b].lane;
  };
  for (size_t i = 0; i < all.size(); ++i) {
    const OpenClSpan& s = all[i];
    trace.add(lanes[static_cast<size_t>(s.lane)],
              s.label > 0 ? s.label : trace.label(s.what.c_str(), s.what.starts_with("copy") ? "copy" : "kernel"),
              static_cast<int64_t>(s.start) + ahead, static_cast<int64_t>(s.end) + ahead,
              same_node(i, i + 1) || (i > 0 && same_node(i - 1, i)));
  }
}

void OpenClDevice::allocate(std::span<const int64_t> segment_bytes) {
  LATHE_USER_CHECK(segments_.empty(), "{}: expected one allocation of the arena, got a second", target_.name);
  const OpenClApi& cl = opencl_api();
  for (const int64_t bytes : segment_bytes) {
    cl_int status = bytes > target_.largest_allocation ? CL_INVALID_BUFFER_SIZE : CL_SUCCESS;
    const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
    ClBuffer buffer;
    if (status == CL_SUCCESS)
      buffer = ClBuffer(cl.clCreateBuffer(context_.get(), CL_MEM_READ_WRITE, size, nullptr, &status));
    // Drivers may allocate only at first use; the fill is that use.
    const cl_uchar zero = 0;
    if (status == CL_SUCCESS)
      status = cl.clEnqueueFillBuffer(compute_.queue(), buffer.get(), &zero, 1, 0, size, 0, nullptr, nullptr);
    if (status == CL_SUCCESS) status = cl.clFinish(compute_.queue());
    ++counters().blocking;
    if (status != CL_SUCCESS)
      throw DeviceError(
          fmt::format("opencl: cannot allocate a segment of {} bytes (arena {} bytes, device memory {} bytes, largest "
                      "allocation {} bytes): {}",
                      bytes, std::accumulate(segment_bytes.begin(), segment_bytes.end(), int64_t{0}), target_.memory,
                      target_.largest_allocation, opencl_error_name(status)));
    ++counters().allocations;
    segments_.push_back(std::move(buffer));
    segment_bytes_.push_back(bytes);
  }
}

Stream& OpenClDevice::stream(Lane lane) {
  if (lane != Lane::communication) return lane == Lane::compute ? compute_ : transfer_;
  if (!communication_) communication_ = std::make_unique<OpenClStream>(*this, lane, context_.get(), id_.device, trace_);
  return *communication_;
}

std::byte* OpenClDevice::allocate_staging(int64_t bytes) {
  const OpenClApi& cl = opencl_api();
  const size_t size = static_cast<size_t>(std::max<int64_t>(bytes, 1));
  if (bytes > target_.largest_allocation) {
    // Memory that the driver does not know: copies take a way through memory of its own, and are right all the same.
    plain_staging_.push_back(std::make_unique<std::byte[]>(size));
    ++counters().allocations;
    return plain_staging_.back().get();
  }
  cl_int status = CL_SUCCESS;
  Staging s;
  s.buffer =
      ClBuffer(cl.clCreateBuffer(context_.get(), CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, size, nullptr, &status));
  ++counters().blocking;
  if (status == CL_SUCCESS)
    s.mapped = cl.clEnqueueMapBuffer(transfer_.queue(), s.buffer.get(), CL_TRUE, CL_MAP_READ | CL_MAP_WRITE, 0, size, 0,
                                     nullptr, nullptr, &status);
  if (status != CL_SUCCESS)
    throw DeviceError(
        fmt::format("opencl: cannot allocate {} bytes of staging memory: {}", bytes, opencl_error_name(status)));
  ++counters().allocations;
  staging_.push_back(std::move(s));
  return static_cast<std::byte*>(staging_.back().mapped);
}

std::vector<OpenClSpan> OpenClDevice::spans() const {
  std::vector<OpenClSpan> all;
  for (const OpenClStream* s : {&compute_, &transfer_, static_cast<const OpenClStream*>(communication_.get())})
    if (s) s->append_spans(all);
  return all;
}

cl_mem OpenClDevice::segment(const Buffer& b) const {
  const size_t s = static_cast<size_t>(b.segment);
  LATHE_USER_CHECK(!segments_.empty(), "{}: expected Device::allocate() before a Program is bound", target_.name);
  LATHE_CHECK(b.segment >= 0 && s < segments_.size() && b.offset >= 0 && b.bytes >= 0 &&
                  b.offset + b.bytes <= segment_bytes_[s],
              "bytes {} + {} of segment {} are outside of the arena", b.offset, b.bytes, b.segment);
  return segments_[s].get();
}

std::unique_ptr<Kernel> OpenClDevice::bind(std::vector<KernelCall> calls, const KernelArgs& args) {
  return std::make_unique<OpenClKernel>(*this, std::move(calls), args);
}

}  // namespace lathe
