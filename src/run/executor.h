// Executor: allocates what the plan says, once, binds every kernel once, and then runs Programs. After construction
// nothing is allocated.
//
// A batch travels: loader -> host slot -> (transfer lane) device slot -> (compute lane) inputs of the Program. Devices
// that share the host's memory skip the device slot. stage(n + 1) may be called while step n computes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "plan/program.h"

namespace lathe {

// What a run allocates, to the byte; known before anything is allocated.
struct RunMemory {
  int64_t arena = 0;           // on the device
  int64_t device_staging = 0;  // on the device: two slots, where it has memory of its own
  int64_t host_staging = 0;    // slots that the loader fills
  int64_t metrics = 0;         // values read by the host
  int64_t snapshot = 0;        // copy of the state that a checkpoint is written from, and one tensor to reorder it in
  int64_t loader = 0;          // the loader's scratch; not the executor's
  int64_t data = 0;            // the data set; not the executor's
  int64_t total() const { return arena + device_staging + host_staging + metrics + snapshot + loader + data; }
};

struct ExecutorOptions {
  int slots = 3;         // host slots: prefetch depth
  bool snapshot = true;  // reserve the checkpoint's copy of the state
};

RunMemory run_memory(const ProgramSet&, const Target&, const ExecutorOptions&);

class Executor {
 public:
  Executor(ProgramSet, std::unique_ptr<Device>, const ExecutorOptions&);
  ~Executor();

  const ProgramSet& set() const { return set_; }
  const RunMemory& predicted() const { return predicted_; }
  int64_t allocated() const { return allocated_; }  // equals predicted().total(); checked in the constructor

  // Host memory of one input in one slot; large enough for every Program's input of that name.
  std::byte* staging(int slot, std::string_view input) const;

  void stage(size_t program, int slot);  // the slot's inputs are complete: start moving them to the device
  void run(size_t program, int slot);    // one step
  // Waits for the step and returns the metric of the Program that ran last.
  double metric(std::string_view name);
  std::span<const std::byte> result(std::string_view name);  // output of kind result
  void synchronize();

  // State by name; blocking.
  void write_state(std::string_view name, std::span<const std::byte>);
  void read_state(std::string_view name, std::span<std::byte>);
  // Copies all state to the snapshot buffer; returns the place of each entry of set().state in it. `reorder` writes the
  // bytes of entry i to their place in the order that a file wants; without it they are copied as they are.
  using Reorder = std::function<void(size_t i, std::span<const std::byte> src, std::span<std::byte> dst)>;
  const std::vector<std::span<const std::byte>>& take_snapshot(const Reorder& reorder = {});

  // Seconds per launch, each waited for: for profiles, not for training (waiting costs speed).
  std::vector<double> profile(size_t program, int slot);

 private:
  struct Bound;
  struct InputSlot {
    int64_t offset = 0, bytes = 0;
  };
  const Port& state_port(std::string_view name) const;
  void take_inputs(size_t program, int slot);
  void work(size_t program, Stream&);  // of a step, once its inputs are in place: kernels, copies, metrics

  ProgramSet set_;
  std::unique_ptr<Device> device_;
  RunMemory predicted_;
  int64_t allocated_ = 0;
  std::map<std::string, InputSlot, std::less<>> layout_;  // inputs within a slot
  int64_t slot_bytes_ = 0;
  std::vector<std::byte*> host_slots_;
  std::byte* metrics_ = nullptr;
  std::byte* snapshot_ = nullptr;
  std::byte* snapshot_scratch_ = nullptr;  // the largest tensor fits
  std::vector<std::span<const std::byte>> snapshot_views_;
  std::vector<std::unique_ptr<Bound>> bound_;
  std::unique_ptr<Event> uploaded_[2], consumed_[2];
  int holds_[2] = {-1, -1};  // device slots: the host slot whose batch waits there; -1: free
  int next_ = 0;             // device slot to stage into, if it is free
  size_t last_program_ = 0;
};

}  // namespace lathe
