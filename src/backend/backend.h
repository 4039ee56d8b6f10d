// What a backend is: a table op -> kernels (best first, each accepts a node or declines with a reason), and devices
// that hold an arena and run bound kernels on lanes. The table is usable with no device present.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/target.h"

namespace lathe {

namespace comm {
class Group;  // comm/group.h
}

// A place in the arena.
struct Buffer {
  int32_t segment = 0;  // which allocation of the arena
  int64_t offset = 0;   // in bytes, within the segment
  int64_t bytes = 0;    // how long it is
};

// A node as a kernel sees it: types and parameters, no graph.
struct Site {
  const Node& node;      // op and parameters
  Types in;              // types of the inputs
  Types out;             // types of the outputs
  const Target& target;  // what the device can do
};

class Device;
class Stream;

enum class Lane {  // The queues of a device, which run side by side.
  compute,         // kernels
  transfer,        // copies from the host
  communication,   // between devices and processes
};
// All of them.
inline constexpr Lane kLanes[] = {Lane::compute, Lane::transfer, Lane::communication};
std::string_view to_string(Lane);  // "compute", ...

// A kernel with its arguments bound: run() only launches. No allocation, no shape logic.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void prepare() {}       // makes what run() launches; called once all kernels of all Programs are bound
  virtual void run(Stream&) = 0;  // launches; may return before the work is done
};

struct KernelArgs {         // Where a bound kernel reads and writes.
  std::vector<Buffer> out;  // outputs of the node
  std::vector<Buffer> in;   // inputs of the node
  Buffer workspace;         // as large as Candidate::workspace said
};

struct Candidate {                      // One way to compute an op: what a row of a kernel table holds.
  std::string_view name;                // of the kernel, as plans show it
  std::string (*accepts)(const Site&);  // "" accepts; otherwise the reason why not
  int64_t (*workspace)(const Site&);    // bytes; null: none. Must not depend on anything but the site
  std::unique_ptr<Kernel> (*bind)(Device&, const Site&, const KernelArgs&);  // ready to run there
  // Runs in its place, within the same workspace, where a library turns out to have nothing for the node when it is
  // bound; "": nothing does.
  std::string_view otherwise = "";
  double work = 1;  // share of the op's flops that it really computes
  // Where it runs, beside what other lanes run. On another lane than compute all its work goes to the Stream of run(),
  // and on devices that work at once run() is called by a thread of its own.
  Lane lane = Lane::compute;
  // Bytes of scratch memory beside the arena that all launches of a device share (Device::allocate_communication);
  // null: none.
  int64_t (*communication)(const Site&) = nullptr;
};

class KernelTable {  // The kernels of a backend, by op.
 public:
  struct Row {            // One kernel for one op.
    std::string_view op;  // name of the op
    Candidate candidate;  // the kernel
    // The backend runs it on the 16-bit floats too, widened to f32: for ops whose arithmetic outweighs two more passes
    // over their values.
    bool widened = false;
  };
  explicit KernelTable(std::vector<Row> rows);                 // order within an op is preference
  std::span<const Row> candidates(std::string_view op) const;  // of an op, best first; empty: none
  std::vector<std::string> ops() const;  // with at least one candidate, sorted: Target::native_ops

 private:
  std::vector<Row> rows_;  // stable-sorted by op
};

// Marks a point in a stream; another stream can wait for it, the host can ask. The answer here is that of streams that
// work at once; other devices override it.
class Event {
 public:
  virtual ~Event() = default;
  virtual bool reached() { return true; }  // without waiting; true where nothing was recorded. DriverError
};

// An in-order queue of a device. Calls may return before the work is done; synchronize() waits for all of it.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual void copy_in(const Buffer& dst, const void* src) = 0;  // dst.bytes from host memory
  virtual void copy_out(void* dst, const Buffer& src) = 0;       // src.bytes to host memory
  virtual void copy(const Buffer& dst, const Buffer& src) = 0;   // within the arena, src.bytes
  virtual void record(Event&) = 0;  // the event is reached when all work given so far is done
  virtual void wait(Event&) = 0;    // work given from now on starts when the event is reached
  virtual void synchronize() = 0;   // the host waits for all work
};

// Work that was recorded once and is launched as one piece.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch(Stream&) = 0;  // does the work again
};

// Calls into a device since it was opened. Devices whose streams work at once count nothing.
struct DeviceCounters {
  int64_t launches = 0;     // kernels started
  int64_t blocking = 0;     // into the driver, that return when the device has done something
  int64_t pauses = 0;       // of the host, by its own clock: it has given so much work that there is no room for more
  int64_t allocations = 0;  // of memory, and of all else that a driver is asked to make: queues, kernels, recordings

  void add(const DeviceCounters& now, const DeviceCounters& before) {  // what was counted in between
    launches += now.launches - before.launches;
    blocking += now.blocking - before.blocking;
    pauses += now.pauses - before.pauses;
    allocations += now.allocations - before.allocations;
  }
};

class Device {  // An opened device with its arena and its queues.
 public:
  virtual ~Device() = default;
  DeviceCounters& counters() { return counters_; }  // since it was opened
  virtual const Target& target() const = 0;         // what it can do and how much memory it has
  // What users should know of the kernels that were bound, a line each; a library that had nothing for a node.
  virtual std::vector<std::string> notes() const { return {}; }
  // Bytes that can be allocated now; 0: the device does not say.
  virtual int64_t free_memory() { return 0; }
  // The arena, once (UserError); zero-filled. DeviceError with the sizes when it cannot be had.
  virtual void allocate(std::span<const int64_t> segment_bytes) = 0;
  virtual Stream& stream(Lane) = 0;  // the queue of that kind; made at the first call where it is rare
  // Calls of its streams and kernels return with the work done: other lanes need threads of the host.
  virtual bool works_at_once() const { return false; }
  virtual std::unique_ptr<Event> make_event() = 0;  // an event of this device's queues
  // Host memory that copy_in reads fast (pinned where that exists); owned by the device.
  virtual std::byte* allocate_staging(int64_t bytes) = 0;
  // Scratch memory that kernels share which talk to other ranks, once and before they run; see
  // Candidate::communication.
  virtual void allocate_communication(int64_t /*bytes*/) {
    throw DeviceError(target().name + " has no memory for communication");
  }
  // Calls `body`, which only launches kernels and copies, and keeps its work instead of doing it. It is given the
  // compute lane; other lanes first wait for an event that it recorded there, and the compute lane waits for all their
  // work. Null where the device cannot record; then `body` was not called.
  virtual std::unique_ptr<Recording> record(const std::string& /*name*/, const std::function<void(Stream&)>& /*body*/) {
    return nullptr;
  }

 private:
  DeviceCounters counters_;
};

struct DeviceOptions {  // Which device of a backend, and how it is used.
  int index = 0;        // of several devices of one kind, from 0
  int threads = 0;      // cpu: 0 = all available
  // Of the ranks that collectives run among; it outlives the device. Null: there is one rank.
  comm::Group* group = nullptr;
};

struct DeviceInfo {           // A device that is here.
  std::string name;           // "cpu", "opencl:0"
  std::string description;    // what a person calls it
  int64_t memory = 0;         // bytes
  std::string driver = "";    // name and version
  bool accelerator = false;   // no processor of the host: faster than `cpu`, or why else would it be there
  std::string unusable = "";  // why it cannot be opened; empty: it can
};

class Backend {  // A kind of device with its kernels.
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;                             // "ref", "cpu", "opencl" or "cuda"
  virtual const KernelTable& kernels() const = 0;                        // usable with no device present
  virtual Target target(const DeviceOptions&) const = 0;                 // of a device that may not be opened yet
  virtual std::vector<DeviceInfo> devices() const = 0;                   // empty with a reason where there are none
  virtual std::string unavailable_reason() const { return ""; }          // why devices() is empty
  virtual std::unique_ptr<Device> open(const DeviceOptions&) const = 0;  // DeviceError with the reason
};

// The table of backends. find_backend throws UserError with the known names.
std::span<const Backend* const> backends();
const Backend& find_backend(std::string_view name);  // the backend of that name

struct DeviceName {     // "opencl:1" in parts.
  std::string backend;  // "opencl"
  int index = 0;        // 1; 0 where the name has none
};
bool is_device_name(std::string_view);           // "cpu", "ref", "opencl:1", "auto"; it need not be there
DeviceName parse_device_name(std::string_view);  // "auto" is what auto_device() says; UserError
// The first usable device of cuda, else the first OpenCL device that is an accelerator, else cpu.
std::string auto_device();
std::string devices_here();  // for messages: "cpu, opencl:0 (NAME)"
// DeviceError with the reason and devices_here(), unless it can be opened.
void require_device(const DeviceName&);

}  // namespace lathe
