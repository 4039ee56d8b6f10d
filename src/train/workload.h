// Workloads of the benchmarks: one training step of a fixed model on random data, comparable with the peers' scripts in
// bench/. The step runs exactly as in training: staged inputs, the same Programs.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "train/compile.h"

namespace lathe {

struct Workload {
  std::string_view name;
  std::string_view doc;
  StepConfig config;
  TensorType sample;
  int64_t batch = 0;
  int steps = 0;  // per block
};

const std::vector<Workload>& workloads();
const Workload& find_workload(std::string_view name);  // UserError listing the known ones

struct LaunchTime {
  std::string kernel, op, origin;
  double seconds = 0;
  Cost cost;
};

struct StepBench {
  double ms_per_step = 0;  // minimum over 3 blocks of the block's mean
  double gflop = 0;        // of one step, by the ops' cost
  double gflops = 0;
  double percent_of_peak = 0;
  int64_t arena_bytes = 0;
  Recomputed recomputed;
  double peak_rss_mb = 0;
  double start_to_step1_s = 0;  // from the start of the process to the end of step 0, in which kernels are compiled
  std::vector<LaunchTime> launches;  // when profiled
};

// `budget`: bytes of arena; 0: no limit.
StepBench bench_step(const Workload&, const std::string& device, int threads, bool profile, int64_t budget = 0);

}  // namespace lathe
