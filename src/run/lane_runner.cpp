#include "run/lane_runner.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <exception>
#include <optional>
#include <thread>

#include "backend/traced_device.h"
#include "base/thread_pool.h"
#include "base/thread_rank.h"

namespace lathe {
namespace {

constexpr const char* kTraceRows[] = {"main thread", "transfer lane", "communication lane"};  // of the Trace, by Lane

bool uses(const BoundLaunches& b, Lane lane) {
  return std::ranges::any_of(b.program->launches, [&](const Launch& l) { return l.lane == lane; });
}

// Lanes are streams of the device, which has its own threads for them.
class StreamLanes final : public LaneRunner {
 public:
  StreamLanes(Device& device, std::vector<BoundLaunches> all) : device_(device), all_(std::move(all)) {
    rows_.fill(-1);
    Trace* const trace = Trace::of_process();
    for (const Lane lane : kLanes) {
      if (lane != Lane::compute && std::ranges::none_of(all_, [&](const BoundLaunches& b) { return uses(b, lane); }))
        continue;
      streams_[static_cast<size_t>(lane)] = &device.stream(lane);
      if (trace && lane != Lane::compute && !dynamic_cast<TracedDevice*>(&device))
        rows_[static_cast<size_t>(lane)] = trace->lane(kTraceRows[static_cast<size_t>(lane)]);
    }
    for (const BoundLaunches& b : all_) {
      Events& e = events_.emplace_back();
      if (b.program->begin_signals) e.begin = device.make_event();
      for (const Launch& l : b.program->launches) e.done.push_back(l.signals ? device.make_event() : nullptr);
    }
  }

  bool run(size_t program) override {
    const BoundLaunches& b = all_[program];
    const Events& events = events_[program];
    Stream& compute = *streams_[static_cast<size_t>(Lane::compute)];
    TracedLaunches traced(device_, *b.labels);
    if (events.begin) compute.record(*events.begin);
    for (size_t i = 0; i < b.kernels->size(); ++i) {
      const Launch& l = b.program->launches[i];
      Stream& stream = *streams_[static_cast<size_t>(l.lane)];
      for (int32_t w : l.waits) stream.wait(events.of(w));
      traced.run(*(*b.kernels)[i], i, stream, rows_[static_cast<size_t>(l.lane)]);
      if (l.signals) stream.record(*events.done[i]);
    }
    for (int32_t w : b.program->end_waits) compute.wait(events.of(w));
    return true;
  }

 private:
  struct Events {
    std::unique_ptr<Event> begin;
    std::vector<std::unique_ptr<Event>> done;  // by launch; null where nobody waits

    Event& of(int32_t launch) const { return launch == kStepBegin ? *begin : *done[static_cast<size_t>(launch)]; }
  };

  Device& device_;
  std::vector<BoundLaunches> all_;
  std::vector<Events> events_;
  std::array<Stream*, std::size(kLanes)> streams_{};
  std::array<int32_t, std::size(kLanes)> rows_{};  // of the Trace
};

// The calling thread is the compute lane, each other lane a thread. How far a lane has come is a number that only
// grows, from step to step too: `begin` of the step for kStepBegin, then one more for each launch of the Program.
class HostLanes final : public LaneRunner {
 public:
  HostLanes(Device& device, std::vector<BoundLaunches> all, Leaving& leaving)
      : device_(device), all_(std::move(all)), leaving_(leaving) {
    if (Trace* const trace = Trace::of_process()) wait_label_ = trace->label("wait for another lane", kWaitSpan);
    for (const Lane lane : kLanes) {
      Worker& w = worker(lane);
      w.lane = lane;
      for (const BoundLaunches& b : all_) {
        auto& list = w.launches.emplace_back();
        for (size_t i = 0; i < b.program->launches.size(); ++i)
          if (b.program->launches[i].lane == lane) list.push_back(i);
      }
      if (lane != Lane::compute && std::ranges::any_of(all_, [&](const BoundLaunches& b) { return uses(b, lane); }))
        w.thread = std::thread([this, &w, rank = thread_rank()] {
          thread_rank() = rank;
          serve(w);
        });
    }
  }

  ~HostLanes() override {
    stop_.store(true, std::memory_order_release);
    for (Worker& w : workers_) {
      if (!w.thread.joinable()) continue;
      give_step(w);
      w.thread.join();
    }
  }

  bool run(size_t program) override {
    const auto count = static_cast<int64_t>(all_[program].program->launches.size());
    program_ = program;
    begin_ = end_ + 1;
    end_ = begin_ + count;
    left_.store(false, std::memory_order_relaxed);
    reach(worker(Lane::compute), begin_);
    for (Worker& w : workers_)
      if (w.thread.joinable() && !w.launches[program].empty()) give_step(w);
    run_lane(worker(Lane::compute), program, begin_);
    for (Worker& w : workers_)
      if (!w.launches[program].empty()) hold(w, end_);
    // Its state is lost, and so it is for all later steps.
    if (failed_.load(std::memory_order_acquire)) std::rethrow_exception(error_);
    return !left_.load(std::memory_order_relaxed);
  }

  double wait_seconds() const override { return 1e-9 * static_cast<double>(waited_ns_); }

 private:
  struct Worker {
    Lane lane = Lane::compute;
    std::vector<std::vector<size_t>> launches;  // by Program: those of this lane
    std::thread thread;
    alignas(64) std::atomic<int64_t> reached{0};  // see the class
    std::atomic<uint32_t> steps{0};               // given to the thread
  };

  Worker& worker(Lane lane) { return workers_[static_cast<size_t>(lane)]; }

  static void give_step(Worker& w) {
    w.steps.fetch_add(1, std::memory_order_acq_rel);
    w.steps.notify_one();
  }

  static void reach(Worker& w, int64_t point) {
    w.reached.store(point, std::memory_order_release);
    w.reached.notify_all();
  }

  static void await(const Worker& w, int64_t point) {
    for (int64_t seen = w.reached.load(std::memory_order_acquire); seen < point;
         seen = w.reached.load(std::memory_order_acquire))
      w.reached.wait(seen, std::memory_order_acquire);
  }

  // The same for the compute lane: what other lanes do is not hidden behind its work here.
  void hold(const Worker& w, int64_t point) {
    if (w.reached.load(std::memory_order_acquire) >= point) return;
    const int64_t begin = Trace::now();
    await(w, point);
    const int64_t end = Trace::now();
    waited_ns_ += end - begin;
    Trace* const trace = wait_label_ >= 0 ? Trace::of_process() : nullptr;
    if (trace && trace->on())
      trace->add(trace->thread_lane(kTraceRows[static_cast<size_t>(Lane::compute)]), wait_label_, begin, end);
  }

  void serve(Worker& w) {
    flush_denormals();
    work_alone();
    for (uint32_t step = 0;; ++step) {
      w.steps.wait(step, std::memory_order_acquire);
      if (stop_.load(std::memory_order_acquire)) return;
      run_lane(w, program_, begin_);
    }
  }

  // A lane that fails or is to leave, or finds that another has, leaves out the rest and reaches the end of the step,
  // so that nobody waits for ever.
  void run_lane(Worker& w, size_t program, int64_t begin) {
    const BoundLaunches& b = all_[program];
    const int64_t end = begin + static_cast<int64_t>(b.program->launches.size());
    try {
      run_launches(w, b, w.launches[program], begin);
    } catch (...) {
      if (!failing_.exchange(true)) {
        error_ = std::current_exception();
        failed_.store(true, std::memory_order_release);
      }
    }
    reach(w, end);
  }

  void run_launches(Worker& w, const BoundLaunches& b, const std::vector<size_t>& launches, int64_t begin) {
    Stream& stream = device_.stream(w.lane);
    Trace* const trace = w.lane != Lane::compute && !b.labels->empty() ? Trace::of_process() : nullptr;
    std::optional<TracedLaunches> traced;
    if (w.lane == Lane::compute) traced.emplace(device_, *b.labels);
    for (size_t i : launches) {
      const Launch& l = b.program->launches[i];
      for (int32_t before : l.waits) {
        const Worker& other =
            worker(before == kStepBegin ? Lane::compute : b.program->launches[static_cast<size_t>(before)].lane);
        w.lane == Lane::compute ? hold(other, begin + before + 1) : await(other, begin + before + 1);
      }
      if (failed_.load(std::memory_order_acquire)) return;
      if (leaving_.leaves((*b.changes)[i])) {
        left_.store(true, std::memory_order_relaxed);
        return;
      }
      Kernel& kernel = *(*b.kernels)[i];
      if (traced) {
        traced->run(kernel, i, stream);
      } else {
        const int64_t time = trace && trace->on() ? Trace::now() : 0;
        kernel.run(stream);
        if (time != 0)
          trace->add(trace->thread_lane(kTraceRows[static_cast<size_t>(w.lane)]), (*b.labels)[i], time, Trace::now());
      }
      if (l.signals) reach(w, begin + static_cast<int64_t>(i) + 1);
    }
  }

  Device& device_;
  std::vector<BoundLaunches> all_;
  Leaving& leaving_;
  std::array<Worker, std::size(kLanes)> workers_;  // by Lane; that of compute has no thread
  // The step: written before it is given to the threads.
  size_t program_ = 0;
  int64_t begin_ = 0, end_ = 0;
  int64_t waited_ns_ = 0;    // of the compute lane
  int32_t wait_label_ = -1;  // in the Trace; -1: there is none
  std::atomic<bool> stop_{false}, failing_{false}, failed_{false}, left_{false};
  std::exception_ptr error_;
};

}  // namespace

std::unique_ptr<LaneRunner> make_lane_runner(Device& device, std::vector<BoundLaunches> all, Leaving& leaving) {
  if (std::ranges::none_of(all, [](const BoundLaunches& b) { return b.program->has_lanes(); })) return nullptr;
  if (device.works_at_once()) return std::make_unique<HostLanes>(device, std::move(all), leaving);
  return std::make_unique<StreamLanes>(device, std::move(all));
}

TracedLaunches::TracedLaunches(Device& device, const std::vector<int32_t>& labels) : labels_(labels) {
  Trace* const trace = Trace::of_process();
  trace_ = trace && trace->on() && !labels.empty() ? trace : nullptr;
  by_itself_ = trace_ && dynamic_cast<TracedDevice*>(&device);
}

void TracedLaunches::run_traced(Kernel& kernel, size_t i, Stream& stream, int32_t row) {
  trace_->set_current(labels_[i]);
  const int64_t begin = Trace::now();
  kernel.run(stream);
  if (by_itself_) return;
  stream.synchronize();
  trace_->add(row >= 0 ? row : trace_->thread_lane(kTraceRows[0]), labels_[i], begin, Trace::now());
}

}  // namespace lathe
