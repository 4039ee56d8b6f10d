#include "backend/cpu/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string_view>

namespace lathe::cpu {
namespace {

// "max" and absent files are no limit.
int64_t limit_in(const std::string& file, int64_t none) {
  std::ifstream in(file);
  int64_t bytes = 0;
  return in >> bytes && bytes > 0 ? bytes : none;
}

}  // namespace

int64_t control_group_limit(const std::string& membership_file, const std::string& root, int64_t none) {
  int64_t limit =
      std::min(limit_in(root + "/memory.max", none), limit_in(root + "/memory/memory.limit_in_bytes", none));
  // Lines are id:controllers:path; version 2 has one line with no controllers. Inside a container the path may not
  // exist under the root; then its parents, up to the root, are what is visible.
  std::ifstream in(membership_file);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool unified = controllers == ",,", memory = controllers.find(",memory,") != std::string::npos;
    if (!unified && !memory) continue;
    for (std::string path = line.substr(second + 1); path.size() > 1;
         path.resize(std::min(path.size(), path.rfind('/'))))
      limit = std::min(
          limit,
          limit_in(unified ? root + path + "/memory.max" : root + "/memory" + path + "/memory.limit_in_bytes", none));
  }
  return limit;
}

int64_t usable_memory() {
  const int64_t physical = static_cast<int64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<int64_t>(sysconf(_SC_PAGESIZE));
  const int64_t bytes = std::min(physical, control_group_limit("/proc/self/cgroup", "/sys/fs/cgroup", physical));
  const int64_t margin = std::max(bytes / 16, int64_t{256} << 20);
  return std::max(bytes - margin, bytes / 2);
}

}  // namespace lathe::cpu
