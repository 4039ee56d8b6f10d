#include "comm/cores.h"

#include <sched.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <thread>

#include "base/error.h"

namespace lathe::comm {
namespace {

std::string first_line(const std::string& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

// "0-3,8": 5; 0 where the file is absent or is not such a list.
int count_cpus(const std::string& file) {
  const std::string line = first_line(file);
  int count = 0;
  for (const char *at = line.data(), *end = at + line.size(); at < end;) {
    int first = 0, last = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc()) return 0;
    last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') {
      parsed = std::from_chars(parsed.ptr + 1, end, last);
      if (parsed.ec != std::errc() || last < first) return 0;
    }
    count += last - first + 1;
    at = parsed.ptr < end && *parsed.ptr == ',' ? parsed.ptr + 1 : end;
  }
  return count;
}

// Version 2: "200000 100000" or "max 100000"; version 1: two files, a quota of -1 is none.
double quota_of(const std::string& folder, bool unified) {
  double quota = 0, period = 0;
  if (unified) {
    std::ifstream in(folder + "/cpu.max");
    if (!(in >> quota >> period)) return 0;
  } else {
    std::ifstream of_quota(folder + "/cpu.cfs_quota_us"), of_period(folder + "/cpu.cfs_period_us");
    if (!(of_quota >> quota) || !(of_period >> period)) return 0;
  }
  return quota > 0 && period > 0 ? quota / period : 0;
}

}  // namespace

Cores find_cores(const Lookup& lookup, const std::string& membership_file, const std::string& root) {
  Cores out;
  out.all = out.mask = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) out.mask = std::max(1, CPU_COUNT(&set));
  const auto limit_cpus = [&](const std::string& file) {
    if (const int n = count_cpus(file); n > 0) out.all = std::min(out.all, n);
  };
  const auto limit_quota = [&](const std::string& folder, bool unified) {
    const double q = quota_of(folder, unified);
    if (q > 0) out.quota = out.quota > 0 ? std::min(out.quota, q) : q;
  };
  // Inside of a container the group's path may not exist under the root; then its parents, up to the root, are what is
  // visible.
  limit_quota(root, true), limit_quota(root + "/cpu", false);
  limit_cpus(root + "/cpuset.cpus.effective"), limit_cpus(root + "/cpuset/cpuset.effective_cpus");
  std::ifstream in(membership_file);
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':'), second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const auto has = [&](const char* name) { return controllers.find(name) != std::string::npos; };
    for (std::string path = line.substr(second + 1); path.size() > 1;
         path.resize(std::min(path.size(), path.rfind('/')))) {
      if (controllers == ",,") limit_quota(root + path, true), limit_cpus(root + path + "/cpuset.cpus.effective");
      if (has(",cpu,")) limit_quota(root + "/cpu" + path, false);
      if (has(",cpuset,")) limit_cpus(root + "/cpuset" + path + "/cpuset.effective_cpus");
    }
  }
  out.all = std::max(out.all, out.mask);
  if (const char* text = lookup("SLURM_CPUS_PER_TASK"); text && *text) {
    const std::string_view value = text;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), out.per_task);
    LATHE_USER_CHECK(error == std::errc() && end == value.data() + value.size() && out.per_task > 0,
                     "SLURM_CPUS_PER_TASK: expected a number from 1, got \"{}\" (environment)", value);
  }
  return out;
}

Cores find_cores() {
  return find_cores([](const char* name) { return std::getenv(name); }, "/proc/self/cgroup", "/sys/fs/cgroup");
}

int threads_per_rank(const Cores& cores, const Launch& launch) {
  const int ranks = std::max(1, launch.local_size);
  int out = std::min(cores.mask, cores.all / ranks);
  // The variable is the job's; without srun it is not this process that it is about.
  if (cores.per_task > 0 && launch.launcher == "Slurm") out = std::min(cores.mask, cores.per_task);
  if (cores.quota > 0) out = std::min(out, static_cast<int>(std::floor(cores.quota)) / ranks);
  return std::max(1, out);
}

}  // namespace lathe::comm
