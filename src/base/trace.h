// Trace: what the threads and device queues of the process did, and when; io/trace_file.h makes a timeline of it. There
// is at most one at a time, found by Trace::of_process(): threads that a pool or a loader starts by themselves have
// nobody to hand it to them. Its memory is there before it begins; beyond that, spans are counted and left out.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace lathe {

// Kinds of labels by which others find what they look for.
inline constexpr const char* kKernelSpan = "kernel";
inline constexpr const char* kCommunicationSpan = "communication";  // kernels that talk to other ranks
inline constexpr const char* kWaitSpan = "wait";                    // of the compute lane for another one
inline constexpr const char* kStepSpan = "step";

struct TraceLabel {
  std::string name;
  std::string kind;             // a viewer colours and filters by it: those below, "step", "data", "copy", ...
  double flops = 0, bytes = 0;  // of one span that is no part
  std::string node = {};        // of the graph
  std::string lane = {};        // of the device, where it is not the one of all kernels
};

struct TraceSpan {
  int32_t lane = 0, label = 0;
  int64_t begin = 0, end = 0;  // ns, see now()
  bool part = false;           // of the work that the label names: flops and bytes are those of all parts together
};

struct TraceLane {
  std::string name;
  int rank = -1;  // that it works for, where the ranks of a run are threads of the process
};

struct TraceData {  // What a Trace holds.
  std::vector<TraceLane> lanes;
  std::vector<TraceLabel> labels;
  std::vector<TraceSpan> spans;
  int64_t left_out = 0;  // spans for which there was no room
};

class Trace {
 public:
  explicit Trace(int64_t most_spans);
  ~Trace();
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  static Trace* of_process();  // null: none
  static int64_t now();        // ns on a clock that never goes back

  void start() { on_.store(true, std::memory_order_release); }
  void stop() { on_.store(false, std::memory_order_release); }
  bool on() const { return on_.load(std::memory_order_acquire); }

  int32_t lane(const std::string& name);  // a new one; "NAME 2" when the rank has one of that name
  int32_t thread_lane(const char* name);  // of the calling thread; made at the first call, then `name` is ignored
  int32_t label(const TraceLabel&);       // a new one
  int32_t label(const char* name, const char* kind);  // the same number for the same name
  // Any thread. Nothing while it is off.
  void add(int32_t lane, int32_t label, int64_t begin, int64_t end, bool part = false);

  // What the pool's threads are working on: the kernel that called the pool.
  void set_current(int32_t label) { current_.store(label, std::memory_order_release); }
  int32_t current() const { return current_.load(std::memory_order_acquire); }

  // When it is off; threads may still be about to add their last span.
  TraceData data() const;

 private:
  std::atomic<bool> on_{false};
  std::atomic<int32_t> current_{0};
  std::atomic<int64_t> next_{0};
  struct Slot {
    TraceSpan span;
    std::atomic<bool> written{false};
  };
  std::vector<Slot> slots_;
  int64_t number_;            // of this trace among those of the process
  mutable std::mutex mutex_;  // of the names
  std::vector<TraceLane> lanes_;
  std::vector<TraceLabel> labels_;
};

// From its making to its end, on the lane of the calling thread, where the process is traced.
class TraceScope {
 public:
  TraceScope(const char* lane, const char* name, const char* kind) : trace_(Trace::of_process()) {
    if (!trace_ || !trace_->on()) return;
    lane_ = trace_->thread_lane(lane);
    label_ = trace_->label(name, kind);
    begin_ = Trace::now();
  }
  ~TraceScope() {
    if (begin_ != 0) trace_->add(lane_, label_, begin_, Trace::now());
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;

 private:
  Trace* trace_;
  int32_t lane_ = 0, label_ = 0;
  int64_t begin_ = 0;
};

}  // namespace lathe
