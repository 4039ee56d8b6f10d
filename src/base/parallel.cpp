#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <vector>

#include "base/thread_pool.h"

namespace lathe {

void run_parallel(size_t count, const std::function<void(size_t)>& f) {
  std::vector<std::exception_ptr> thrown(count);
  std::atomic<size_t> next{0};
  const auto work = [&] {
    for (size_t i = next++; i < count; i = next++) try {
        f(i);
      } catch (...) {
        thrown[i] = std::current_exception();
      }
  };
  {
    std::vector<std::jthread> others;
    const size_t threads = std::min(count, static_cast<size_t>(available_threads()));
    for (size_t t = 1; t < threads; ++t) others.emplace_back(work);
    work();
  }
  for (const std::exception_ptr& e : thrown)
    if (e) std::rethrow_exception(e);
}

}  // namespace lathe
