// A device whose arena is host memory and whose streams work at once: what the backends `ref` and `cpu` run on. Their
// kernels take the Device& of bind() for a HostDevice and keep plain pointers (address()).
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "comm/collectives.h"

namespace lathe {

class HostDevice;

// In order and synchronous: every call returns with the work done. Each stream is used by one thread at a time.
class HostStream final : public Stream {
 public:
  explicit HostStream(HostDevice& device) : device_(device) {}
  HostDevice& device() const { return device_; }

  void copy_in(const Buffer& dst, const void* src) override;
  void copy_out(void* dst, const Buffer& src) override;
  void copy(const Buffer& dst, const Buffer& src) override;
  void record(Event&) override {}
  void wait(Event&) override {}
  void synchronize() override {}

 private:
  HostDevice& device_;
};

class HostDevice : public Device {
 public:
  // threads 0: all available; Target::threads is set to the number in use. `group` outlives the device; null: one rank.
  HostDevice(Target target, int threads, comm::Group* group = nullptr);

  const Target& target() const override { return target_; }
  void allocate(std::span<const int64_t> segment_bytes) override;
  Stream& stream(Lane lane) override { return streams_[static_cast<size_t>(lane)]; }
  bool works_at_once() const override { return true; }
  std::unique_ptr<Event> make_event() override { return std::make_unique<Event>(); }
  std::byte* allocate_staging(int64_t bytes) override;
  void allocate_communication(int64_t bytes) override;

  ThreadPool& pool() { return pool_; }
  comm::Collectives& collectives(int64_t ranks);  // of so many ranks; UserError where the device has no such group
  comm::Collectives& collectives();               // of all ranks of the group
  // Stable from allocate() on. InternalError when the buffer does not lie within the arena.
  std::byte* address(const Buffer&) const;

 private:
  struct Unmap {
    size_t bytes = 0;
    void operator()(void*) const;
  };
  struct Memory {
    std::unique_ptr<void, Unmap> pages;
    std::byte* data = nullptr;  // aligned, within the pages
    int64_t bytes = 0;
  };
  Memory make(int64_t bytes);

  Target target_;
  ThreadPool pool_;
  HostStream streams_[std::size(kLanes)] = {HostStream(*this), HostStream(*this), HostStream(*this)};  // by Lane
  std::vector<Memory> segments_, staging_;
  std::optional<comm::Collectives> collectives_;
  bool allocated_ = false;
};

// For bind(): the host device behind a Device&; InternalError when it is another one.
HostDevice& host_device(Device&);

}  // namespace lathe
