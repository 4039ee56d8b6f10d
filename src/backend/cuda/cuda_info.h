// What the driver says about devices, as C++ values.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "backend/cuda/cuda_api.h"
#include "ir/target.h"

namespace lathe {

struct CudaInfo {
  cuda::DeviceId id = 0;
  std::string name;
  int64_t memory = 0;
  int major = 0, minor = 0;  // compute capability
  int multiprocessors = 0;
  std::array<int64_t, 3> largest_grid{};  // blocks along x, y, z
  int clock_khz = 0, memory_clock_khz = 0, memory_bus_bits = 0;
  std::string architecture() const;  // "sm_80"
  bool usable() const;               // new enough
  std::string too_old() const;       // what is said of it otherwise
};

std::string cuda_driver_text(const cuda::Api&);  // "CUDA 12.4"

// All devices in the driver's order: number i is "cuda:i". Empty, with a reason, where there are none.
std::vector<CudaInfo> cuda_devices(const cuda::Api&, std::string* reason = nullptr);

constexpr int kOldestCapability = 75;  // the oldest that NVRTC 13 compiles for
// What a card of this compute capability (times 10) changes of a target: the workspace of libraries.
void set_capability(Target&, int capability);
// Without native_ops. `info` null: a device that is not there, with usual limits.
Target cuda_target(const cuda::Api&, const CudaInfo* info);

// Dense arithmetic of one clock and multiprocessor, times both; 0 where this generation has no such unit. Products sum
// in f32, at which the tensor cores of GeForce cards run half as fast as those of professional ones of their
// generation.
enum class CudaMath { f32, tf32, f16, f64 };
double peak_flops(const CudaInfo&, CudaMath);

}  // namespace lathe
