#include "base/thread_pool.h"

#include <sched.h>

#include <chrono>
#include <thread>
#include <vector>

#include "base/thread_rank.h"
#include "base/trace.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace lathe {

namespace {
// A thread without work polls before it sleeps: waking it takes tens to hundreds of microseconds (more in a virtual
// machine), so one that slept through the gaps between kernels would come too late to each of them. It polls
// without leaving the core for a moment, then offers the core to others at each poll, then sleeps.
constexpr int kSpins = 1000;
constexpr std::chrono::milliseconds kYielding{3};
constexpr int kYieldsPerClock = 16;  // the clock is read once in so many yields

constexpr std::chrono::milliseconds kBetweenMoves{2};

thread_local bool works_alone = false;

// The kernel may wake a worker on the core of the thread that waits for it, and on a busy machine leaves both there
// for many milliseconds. The worker then steps aside; afterwards it may again run wherever the process may.
void leave_core(int core) {
  cpu_set_t all;
  if (sched_getaffinity(0, sizeof(all), &all) != 0 || !CPU_ISSET(core, &all) || CPU_COUNT(&all) < 2) return;
  cpu_set_t others = all;
  CPU_CLR(core, &others);
  if (sched_setaffinity(0, sizeof(others), &others) == 0) sched_setaffinity(0, sizeof(all), &all);
}

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}
}  // namespace

// One job at a time. `ticket` packs the job's epoch (high 32 bits) with the next free index (low 32 bits), so that a
// worker that wakes late cannot take an index of a newer job with an older job's task.
struct ThreadPool::Shared {
  std::atomic<uint32_t> epoch{0};
  std::atomic<int> sleepers{0};
  std::atomic<bool> stop{false};
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<int64_t> done{0};
  std::atomic<Task> task{nullptr};
  std::atomic<void*> context{nullptr};
  std::atomic<int64_t> count{0};
  std::atomic<int> caller_core{-1};
  std::vector<std::thread> workers;

  // True where the thread had a part in the job.
  bool work(uint32_t job) {
    bool any = false;
    const Task f = task.load(std::memory_order_acquire);
    void* const c = context.load(std::memory_order_acquire);
    const int64_t n = count.load(std::memory_order_acquire);
    while (true) {
      uint64_t seen = ticket.load(std::memory_order_acquire);
      do {
        if (static_cast<uint32_t>(seen >> 32) != job || static_cast<int64_t>(seen & 0xffffffffu) >= n) return any;
      } while (!ticket.compare_exchange_weak(seen, seen + 1, std::memory_order_acq_rel));
      any = true;
      f(c, static_cast<int64_t>(seen & 0xffffffffu));
      done.fetch_add(1, std::memory_order_acq_rel);
    }
  }

  void worker() {
    flush_denormals();
    uint32_t seen = 0;
    std::chrono::steady_clock::time_point next_move{};
    while (true) {
      uint32_t now = epoch.load(std::memory_order_acquire);
      for (int i = 0; now == seen && i < kSpins; ++i) {
        relax();
        now = epoch.load(std::memory_order_acquire);
      }
      const auto end = std::chrono::steady_clock::now() + kYielding;
      for (int i = 1; now == seen && (i % kYieldsPerClock != 0 || std::chrono::steady_clock::now() < end); ++i) {
        std::this_thread::yield();
        now = epoch.load(std::memory_order_acquire);
      }
      if (now == seen) {
        sleepers.fetch_add(1, std::memory_order_seq_cst);
        epoch.wait(seen, std::memory_order_seq_cst);
        sleepers.fetch_sub(1, std::memory_order_seq_cst);
        now = epoch.load(std::memory_order_acquire);
      }
      if (stop.load(std::memory_order_acquire)) return;
      if (now == seen) continue;
      seen = now;
      if (const int core = sched_getcpu(); core == caller_core.load(std::memory_order_relaxed)) {
        const auto time = std::chrono::steady_clock::now();
        if (time >= next_move) {
          leave_core(core);
          next_move = time + kBetweenMoves;
        }
      }
      Trace* const trace = Trace::of_process();
      const int64_t begin = trace && trace->on() ? Trace::now() : 0;
      const int32_t label = begin != 0 ? trace->current() : 0;
      if (work(now) && begin != 0) trace->add(trace->thread_lane("worker"), label, begin, Trace::now(), true);
    }
  }
};

ThreadPool::ThreadPool(int threads) : threads_(threads < 1 ? 1 : threads), shared_(std::make_unique<Shared>()) {
  for (int i = 1; i < threads_; ++i)
    shared_->workers.emplace_back([s = shared_.get(), rank = thread_rank()] {
      thread_rank() = rank;
      s->worker();
    });
}

ThreadPool::~ThreadPool() {
  shared_->stop.store(true, std::memory_order_release);
  shared_->epoch.fetch_add(1, std::memory_order_seq_cst);
  shared_->epoch.notify_all();
  for (auto& w : shared_->workers) w.join();
}

void ThreadPool::run_indices(int64_t count, Task task, void* context) {
  if (threads_ == 1 || count <= 1 || works_alone) {
    for (int64_t i = 0; i < count; ++i) task(context, i);
    return;
  }
  Shared& s = *shared_;
  const uint32_t job = s.epoch.load(std::memory_order_relaxed) + 1;
  // A worker still inside work() of the previous job sees the old epoch in the ticket until it is replaced below, and
  // then leaves: the fields it read belong to the job whose tickets it may draw.
  s.done.store(0, std::memory_order_relaxed);
  s.ticket.store(uint64_t{job} << 32 | 0xffffffffu, std::memory_order_release);  // closed while the job is written
  s.context.store(context, std::memory_order_release);
  s.count.store(count, std::memory_order_release);
  s.caller_core.store(sched_getcpu(), std::memory_order_relaxed);
  s.task.store(task, std::memory_order_release);
  s.ticket.store(uint64_t{job} << 32, std::memory_order_release);
  s.epoch.store(job, std::memory_order_seq_cst);
  if (s.sleepers.load(std::memory_order_seq_cst) > 0) s.epoch.notify_all();
  s.work(job);
  for (int i = 0; s.done.load(std::memory_order_acquire) != count; ++i) {
    if (i < kSpins)
      relax();
    else
      std::this_thread::yield();
  }
}

void work_alone() { works_alone = true; }

void flush_denormals() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

int available_threads() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    const int n = CPU_COUNT(&set);
    if (n > 0) return n;
  }
  const unsigned n = std::thread::hardware_concurrency();
  return n > 0 ? static_cast<int>(n) : 1;
}

}  // namespace lathe
