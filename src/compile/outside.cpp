#include "compile/outside.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "backend/backend.h"

namespace lathe {
namespace {

constexpr int64_t kStack = 64 << 10;  // that a thread touches, with its buffers
constexpr int64_t kStart = 6 << 20;   // kernels bound, first values of the state, files of a checkpoint
// What a driver takes beyond its libraries, which are in memory once devices were listed. Measured as growth of the
// resident size from there to the end of two steps, PoCL 3.1 with an empty cache (POCL_CACHE_DIR): 172 MiB (mlp), 175
// (gpt_tiny), 180 (fashion_mnist), all of them small; 20 MiB when its cache has the kernels. Other drivers were not
// measured.
constexpr int64_t kDriver = 180 << 20;

}  // namespace

int64_t resident_now() {
  long long total = 0, resident = 0;
  if (std::FILE* f = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(f, "%lld %lld", &total, &resident) != 2) resident = 0;
    std::fclose(f);
  }
  return resident * sysconf(_SC_PAGESIZE);
}

int64_t resident_peak() {
  // getrusage() counts what the launcher had before it became this program.
  long long kib = 0;
  if (std::FILE* f = std::fopen("/proc/self/status", "re")) {
    char line[256];
    while (std::fgets(line, sizeof line, f))
      if (std::sscanf(line, "VmHWM: %lld kB", &kib) == 1) break;
    std::fclose(f);
  }
  return kib * 1024;
}

int64_t estimate_outside(const Compiled& c, int64_t held) {
  const int loaders = 1 + (c.data.validation > 0) + (c.data.test > 0);
  const int64_t threads = c.target.threads + c.recipe.data.threads * loaders;
  return std::max<int64_t>(0, resident_now() - held) + kStart + threads * kStack + (c.target.host_memory ? 0 : kDriver);
}

int64_t measure_outside(const Compiled& c) {
  const RunMemory m = c.memory();
  // A driver for the host's processor keeps the arena in the host's memory.
  const DeviceName device = parse_device_name(c.recipe.device.name);
  const std::vector<DeviceInfo> all = find_backend(device.backend).devices();
  const bool card =
      static_cast<size_t>(device.index) < all.size() && all[static_cast<size_t>(device.index)].accelerator;
  const int64_t on_device = card ? m.arena + m.device_staging : 0;
  return std::max<int64_t>(0, resident_peak() - (m.total() - on_device));
}

}  // namespace lathe
