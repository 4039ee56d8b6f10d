// A simulator of an NVIDIA card with its driver, NVRTC, cuBLASLt and cuDNN. simulator_api() fills the function table of
// the cuda backend, so the backend's real code runs on it. Work is done at once, in host memory, and checked:
//   memory     every access of kernels, copies and libraries must lie in a live allocation, aligned to its size
//   order      vector clocks of streams, events and the host; a conflicting access that is not ordered is a race.
//              What is copied to the host arrives there only when the host waits for it.
//   barriers   work-items of a group must meet at the same one; none may have left; missing ones: set_order_check()
//   libraries  results are computed from the descriptors that were passed, so a wrong one gives wrong numbers
//   capture    the rules for streams under capture
// Whatever is found is an error of the call, and is kept as a report.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "backend/cuda/cuda_api.h"

namespace lathe::sim {

cuda::Api simulator_api();

// Violations since the last call, in order. Tests demand that there are none, or the one they planted.
std::vector<std::string> take_reports();

struct Counters {
  int64_t kernels = 0, copies = 0, matmuls = 0, convolutions = 0, operation_graphs = 0, graph_launches = 0,
          events_waited = 0, compilations = 0;
};
Counters counters();

// NVTX ranges: how often each was opened since the last call, by name and the names around it ("train > matmul fc1"),
// and how many are open now. A pop too many is a report.
struct Ranges {
  std::map<std::string, int64_t> opened;
  int64_t open = 0;
};
Ranges take_ranges();

// Bytes of device memory; allocations beyond it fail.
void set_device_memory(int64_t bytes);
// Blocks along y and z of a grid, 65535 on every card; launches beyond it fail.
void set_largest_grid(int64_t blocks);
// Every launch runs twice from the same memory, the second time with the last block and the last work-item first.
// Group-shared variables hold garbage at the start of each block, from when the launch has written to them. A kernel
// whose results then differ in a bit lacks a barrier or writes where another work-item reads or writes: a report.
void set_order_check(bool on);
int64_t live_allocations();  // device and pinned

}  // namespace lathe::sim
