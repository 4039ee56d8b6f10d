// StopFlag: a wish to stop. A signal handler may set it, and any thread may ask for it at any time.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace lathe {

class StopFlag {  // A wish to stop, and since when; set by signal handlers, read by any thread.
 public:
  void set(int signal) {  // its number; the time is that of the first one
    int64_t none = 0;
    since_.compare_exchange_strong(none, now());
    signal_.store(signal, std::memory_order_release);
  }
  void clear() {  // nobody wants to stop
    signal_.store(0);
    since_.store(0);
  }
  int signal() const { return signal_.load(std::memory_order_relaxed); }                // 0: nobody wants to stop
  double seconds() const { return 1e-9 * static_cast<double>(now() - since_.load()); }  // since it was set

 private:
  static int64_t now() {
    using std::chrono::steady_clock;
    return std::chrono::nanoseconds(steady_clock::now().time_since_epoch()).count();
  }

  std::atomic<int> signal_{0};
  std::atomic<int64_t> since_{0};
  static_assert(std::atomic<int>::is_always_lock_free && std::atomic<int64_t>::is_always_lock_free);
};

}  // namespace lathe
