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

// A place in the arena.
struct Buffer {
  int32_t segment = 0;
  int64_t offset = 0;
  int64_t bytes = 0;
};

// A node as a kernel sees it: types and parameters, no graph.
struct Site {
  const Node& node;
  Types in;
  Types out;
  const Target& target;
};

class Device;
class Stream;

// A kernel with its arguments bound: run() only launches. No allocation, no shape logic.
class Kernel {
 public:
  virtual ~Kernel() = default;
  virtual void prepare() {}  // makes what run() launches; called once all kernels of all Programs are bound
  virtual void run(Stream&) = 0;
};

struct KernelArgs {
  std::vector<Buffer> out;
  std::vector<Buffer> in;
  Buffer workspace;
};

struct Candidate {
  std::string_view name;
  std::string (*accepts)(const Site&);  // "" accepts; otherwise the reason why not
  int64_t (*workspace)(const Site&);    // bytes; null: none. Must not depend on anything but the site
  std::unique_ptr<Kernel> (*bind)(Device&, const Site&, const KernelArgs&);
  // Runs in its place, within the same workspace, where a library turns out to have nothing for the node when it is
  // bound; "": nothing does.
  std::string_view otherwise = "";
};

class KernelTable {
 public:
  struct Row {
    std::string_view op;
    Candidate candidate;
  };
  explicit KernelTable(std::vector<Row> rows);  // order within an op is preference
  std::span<const Row> candidates(std::string_view op) const;
  std::vector<std::string> ops() const;  // with at least one candidate, sorted: Target::native_ops

 private:
  std::vector<Row> rows_;  // stable-sorted by op
};

enum class Lane { compute, transfer };

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
  virtual void record(Event&) = 0;
  virtual void wait(Event&) = 0;
  virtual void synchronize() = 0;
};

// Work that was recorded once and is launched as one piece.
class Recording {
 public:
  virtual ~Recording() = default;
  virtual void launch(Stream&) = 0;
};

// Calls into a device since it was opened. Devices whose streams work at once count nothing.
struct DeviceCounters {
  int64_t launches = 0;
  int64_t blocking = 0;     // into the driver, that return when the device has done something
  int64_t pauses = 0;       // of the host, by its own clock: it has given so much work that there is no room for more
  int64_t allocations = 0;  // of memory, and of all else that a driver is asked to make: queues, kernels, recordings
};

class Device {
 public:
  virtual ~Device() = default;
  DeviceCounters& counters() { return counters_; }
  virtual const Target& target() const = 0;
  // What users should know of the kernels that were bound, a line each; a library that had nothing for a node.
  virtual std::vector<std::string> notes() const { return {}; }
  // Bytes that can be allocated now; 0: the device does not say.
  virtual int64_t free_memory() { return 0; }
  // The arena, once; zero-filled. DeviceError with the sizes when it cannot be had.
  virtual void allocate(std::span<const int64_t> segment_bytes) = 0;
  virtual Stream& stream(Lane) = 0;
  virtual std::unique_ptr<Event> make_event() = 0;
  // Host memory that copy_in reads fast (pinned where that exists); owned by the device.
  virtual std::byte* allocate_staging(int64_t bytes) = 0;
  // Calls `body`, which only launches kernels and copies on the compute lane, and keeps its work instead of doing it.
  // Null where the device cannot record; then `body` was not called.
  virtual std::unique_ptr<Recording> record(const std::string& /*name*/, const std::function<void(Stream&)>& /*body*/) {
    return nullptr;
  }

 private:
  DeviceCounters counters_;
};

struct DeviceOptions {
  int index = 0;
  int threads = 0;  // cpu: 0 = all available
};

struct DeviceInfo {
  std::string name;         // "cpu", "opencl:0"
  std::string description;  // what a person calls it
  int64_t memory = 0;
  std::string driver = "";    // name and version
  bool accelerator = false;   // no processor of the host: faster than `cpu`, or why else would it be there
  std::string unusable = "";  // why it cannot be opened; empty: it can
};

class Backend {
 public:
  virtual ~Backend() = default;
  virtual std::string_view name() const = 0;
  virtual const KernelTable& kernels() const = 0;
  virtual Target target(const DeviceOptions&) const = 0;  // of a device that may not be opened yet
  virtual std::vector<DeviceInfo> devices() const = 0;    // empty with a reason where there are none
  virtual std::string unavailable_reason() const { return ""; }
  virtual std::unique_ptr<Device> open(const DeviceOptions&) const = 0;
};

// The table of backends. find_backend throws UserError with the known names.
std::span<const Backend* const> backends();
const Backend& find_backend(std::string_view name);

struct DeviceName {
  std::string backend;
  int index = 0;
};
bool is_device_name(std::string_view);           // "cpu", "ref", "opencl:1", "auto"; it need not be there
DeviceName parse_device_name(std::string_view);  // "auto" is what auto_device() says; UserError
// The first usable device of cuda, else the first OpenCL device that is an accelerator, else cpu.
std::string auto_device();
std::string devices_here();  // for messages: "cpu, opencl:0 (NAME)"
// DeviceError with the reason and devices_here(), unless it can be opened.
void require_device(const DeviceName&);

}  // namespace lathe
