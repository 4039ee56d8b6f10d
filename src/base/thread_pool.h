// Compute threads: `run(count, f)` calls f(0) .. f(count-1), each exactly once, and returns when all are done.
// Which thread gets which index is not fixed, so an index must own its outputs: then results do not depend on
// the number of threads. No allocation in run(). Worker threads flush denormals to zero, and so does the caller
// of run() (see flush_denormals).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace lathe {

class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // total threads that work in run(), the caller included
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Not reentrant: f must not call run() of the same pool. f must not throw.
  template <class F>
  void run(int64_t count, F&& f) {
    run_indices(
        count, [](void* context, int64_t index) { (*static_cast<std::remove_reference_t<F>*>(context))(index); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

  // Splits [0, n) into blocks of `grain` (the last one shorter) and calls f(begin, end) for each.
  template <class F>
  void run_blocks(int64_t n, int64_t grain, F&& f) {
    run((n + grain - 1) / grain, [&](int64_t block) {
      const int64_t begin = block * grain;
      f(begin, begin + grain < n ? begin + grain : n);
    });
  }

  // f(i, slot) for all i < count, on at most `slots` threads: calls at the same time never have the same slot, which is
  // below `slots`. For tasks that need a buffer of their own.
  template <class F>
  void run_slots(int64_t slots, int64_t count, F&& f) {
    if (slots <= 1 || count <= 1) {
      for (int64_t i = 0; i < count; ++i) f(i, int64_t{0});
      return;
    }
    std::atomic<int64_t> next{0};
    run(slots < count ? slots : count, [&](int64_t slot) {
      for (int64_t i = next++; i < count; i = next++) f(i, slot);
    });
  }

 private:
  using Task = void (*)(void* context, int64_t index);
  void run_indices(int64_t count, Task task, void* context);

  struct Shared;
  int threads_;
  std::unique_ptr<Shared> shared_;
};

// From now on pools run the tasks of this thread's calls on this thread alone: for one that works beside the thread
// that a pool serves.
void work_alone();

// Sets flush-to-zero and denormals-are-zero for the calling thread (x86; elsewhere nothing).
void flush_denormals();

// Threads to use by default: the affinity mask of the process, at least 1.
int available_threads();

}  // namespace lathe
