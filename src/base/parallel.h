// Independent pieces of host work side by side. For kernels there is ThreadPool (base/thread_pool.h).
#pragma once

#include <cstddef>
#include <functional>

namespace lathe {

// f(0) .. f(count - 1), each once, on the threads that are available; returns when all are done. Which thread gets
// which index is not fixed: an index owns what it writes. Throws what the lowest index threw that did. Threads are
// started for the call, which pays for work of milliseconds, and compute with the caller's floating-point modes.
void run_parallel(size_t count, const std::function<void(size_t)>& f);

}  // namespace lathe
