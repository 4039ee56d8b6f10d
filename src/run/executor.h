// Executor: allocates what the plan says, once, binds every kernel once, and then runs Programs. After construction
// nothing is allocated.
//
// A batch travels: loader -> host slot -> (transfer lane) device slot -> (compute lane) inputs of the Program. Devices
// that share the host's memory skip the device slot. stage(n + 1) may be called while step n computes.
//
// Launches run on the lanes that the plan gave them (run/lane_runner.h); a step is done when all lanes are. Programs
// with the compute lane alone have no events and no threads for that.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "plan/program.h"
#include "run/leaving.h"

namespace lathe {

class LaneRunner;  // run/lane_runner.h

// What a run allocates, to the byte; known before anything is allocated.
struct RunMemory {
  int64_t arena = 0;           // on the device
  int64_t device_staging = 0;  // on the device: two slots, where it has memory of its own
  int64_t host_staging = 0;    // slots that the loader fills
  int64_t metrics = 0;         // values read by the host
  int64_t communication = 0;   // scratch of collectives
  int64_t snapshot = 0;        // one tensor of the state, and room to reorder it: what checkpoints are written from
  int64_t loader = 0;          // the loader's scratch; not the executor's
  int64_t data = 0;            // the data set; not the executor's
  // All of it.
  int64_t total() const {
    return arena + device_staging + host_staging + metrics + communication + snapshot + loader + data;
  }
};

struct ExecutorOptions {      // How much an executor prepares.
  int slots = 3;              // host slots: prefetch depth
  bool snapshot = true;       // reserve what checkpoints are written from
  int64_t largest_whole = 0;  // bytes of the largest tensor that ranks have parts of: checkpoints hold it whole
  int ahead = 1;              // runs whose metrics are kept: so many may be under way when they are to be read
};

// What an Executor of these would allocate.
RunMemory run_memory(const ProgramSet&, const Target&, const ExecutorOptions&);

class Executor {  // Runs Programs on a device.
 public:
  Executor(ProgramSet, std::unique_ptr<Device>, const ExecutorOptions&);  // allocates and binds
  ~Executor();

  const ProgramSet& set() const { return set_; }             // what it runs
  const RunMemory& predicted() const { return predicted_; }  // as run_memory
  int64_t allocated() const { return allocated_; }           // equals predicted().total(); checked in the constructor

  // Host memory of one input in one slot; large enough for every Program's input of that name.
  std::byte* staging(int slot, std::string_view input) const;
  bool has_input(std::string_view name) const { return layout_.contains(name); }  // some Program reads it

  void stage(size_t program, int slot);    // the slot's inputs are complete: start moving them to the device
  int64_t run(size_t program, int slot);   // one step; returns its number, counted from 0; -1: it was left
  Leaving& leaving() { return leaving_; }  // whether runs are left half-way; none are, unless a flag is watched
  // The host slot may be filled again: its inputs have moved.
  bool has_moved(int slot) { return moved_[static_cast<size_t>(slot)]->reached(); }
  bool is_done(int64_t run) { return done_of(run).reached(); }  // without waiting
  // The host rests until then: it asks now and then, and makes no call that blocks. Counted as a pause.
  void pause_until_moved(int slot) { pause_until(*moved_[static_cast<size_t>(slot)]); }
  void pause_until_done(int64_t run) { pause_until(done_of(run)); }  // the same for a run
  // Of one of the last `ahead` runs, which is done; of the last run, which is waited for.
  double metric(int64_t run, std::string_view name) const;
  double metric(std::string_view name);                      // the same of the last run
  std::span<const std::byte> result(std::string_view name);  // output of kind result
  void synchronize();                                        // waits for all that was given
  // That the compute lane waited for other lanes since the start, where lanes are threads of the host; else 0.
  double lane_wait_seconds() const;

  // State by name; blocking.
  void write_state(std::string_view name, std::span<const std::byte>);                       // of exactly its size
  void write_state_part(std::string_view name, int64_t offset, std::span<const std::byte>);  // from byte `offset` on
  void read_state(std::string_view name, std::span<std::byte>);  // into memory of exactly its size
  // A copy of entry i of set().state, as it is now; valid until the next call. `reorder` writes the bytes in the order
  // that a file wants; without it they are as they are. Needs ExecutorOptions::snapshot.
  using Reorder = std::function<void(std::span<const std::byte> src, std::span<std::byte> dst)>;
  std::span<const std::byte> copy_state(size_t i, const Reorder& reorder = {});  // see above
  // Room for two tensors of the state as a whole, for whoever gathers, reorders or loads one; none without
  // ExecutorOptions::snapshot.
  std::span<std::byte> snapshot() { return {snapshot_, static_cast<size_t>(predicted_.snapshot)}; }

  // Seconds per launch, one after the other and each waited for: for profiles, not for training (waiting costs speed).
  std::vector<double> profile(size_t program, int slot);

  Device& device() { return *device_; }  // that it runs on

 private:
  struct Bound;
  struct InputSlot {
    int64_t offset = 0, bytes = 0;
  };
  const Port& state_port(std::string_view name) const;
  void take_inputs(size_t program, int slot);
  bool work(size_t program, Stream& compute);  // of a step, once its inputs are in place: kernels and copies; or left
  size_t place_of(int64_t run) const { return static_cast<size_t>(run) % done_.size(); }
  void pause_until(Event&);
  Event& done_of(int64_t run) { return *done_[place_of(run)]; }

  ProgramSet set_;
  std::unique_ptr<Device> device_;
  RunMemory predicted_;
  int64_t allocated_ = 0;
  std::map<std::string, InputSlot, std::less<>> layout_;  // inputs within a slot
  int64_t slot_bytes_ = 0;
  std::vector<std::byte*> host_slots_;
  std::byte* metrics_ = nullptr;  // a place for each run ahead, then the results
  int64_t metrics_stride_ = 0;
  std::byte* snapshot_ = nullptr;
  std::vector<std::unique_ptr<Bound>> bound_;
  Leaving leaving_;
  std::unique_ptr<LaneRunner> lanes_;          // null: no Program has several
  std::vector<std::unique_ptr<Event>> moved_;  // of each host slot
  std::unique_ptr<Event> consumed_[2];
  std::vector<std::unique_ptr<Event>> done_;  // of the last runs
  std::vector<size_t> programs_;              // of the last runs
  int holds_[2] = {-1, -1};                   // device slots: the host slot whose batch waits there; -1: free
  int next_ = 0;                              // device slot to stage into, if it is free
  int64_t runs_ = 0;
};

}  // namespace lathe
