// Workloads of the benchmarks: one training step of a fixed model on random data, comparable with the peers' scripts in
// bench/. The step runs exactly as in training: staged inputs, the same Programs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/world.h"
#include "compile/compile.h"

namespace lathe {

struct Workload {         // A step to measure.
  std::string_view name;  // for `lathe bench step`
  std::string_view doc;   // one line
  StepConfig config;      // of its graphs
  TensorType sample;      // type of one
  int64_t batch = 0;      // samples
  int steps = 0;          // per block
};

const std::vector<Workload>& workloads();              // the table
const Workload& find_workload(std::string_view name);  // UserError listing the known ones

struct LaunchTime {                // One launch of a step.
  std::string kernel, op, origin;  // names
  double seconds = 0;              // of the launch
  Cost cost;                       // flops as the kernel computes them
};

struct StepBench {                   // A step, measured.
  double ms_per_step = 0;            // minimum over 3 blocks of the block's mean
  double gflop = 0;                  // of one step, by the ops' cost, on one rank
  double gflops = 0;                 // achieved, per second
  double percent_of_peak = 0;        // by what kernels compute
  int64_t arena_bytes = 0;           // as planned
  Recomputed recomputed;             // to stay within the budget
  double peak_rss_mb = 0;            // of the process
  double start_to_step1_s = 0;       // from the start of the process until the first step begins
  double start_system_s = 0;         // of it, the kernel's processor time over all threads: pages are made and zeroed
  double first_step_s = 0;           // caches are cold
  double sent_bytes = 0;             // to other ranks, per step
  std::vector<LaunchTime> launches;  // when profiled
};

struct StepBenchOptions {      // How a step is measured.
  std::string device = "cpu";  // as in recipes
  int threads = 0;             // of the cpu, for each rank; 0: all that there are, divided among the ranks
  int ranks = 1;               // threads of this process that divide the batch
  int64_t shard = 0;           // level of ShardOptions
  bool profile = false;        // time of each launch; of one rank alone
  int64_t budget = 0;          // bytes of arena; 0: no limit
};

// On several ranks, time, rates and memory are those of the first one; the peak is that of its threads.
StepBench bench_step(const Workload&, const StepBenchOptions&);
// The same as one of the processes that a launcher started, which divide the batch; `ranks` is 1.
StepBench bench_step_in(comm::World&, const Workload&, StepBenchOptions);

}  // namespace lathe
