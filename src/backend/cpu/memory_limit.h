// How much memory this process may have: physical memory, or less where a control group (a container, a batch job) says
// so.
#pragma once

#include <cstdint>
#include <string>

namespace lathe::cpu {

// The smallest limit along the process's control groups, versions 1 and 2; `none` where there is none. The arguments
// are /proc/self/cgroup and /sys/fs/cgroup but in tests.
int64_t control_group_limit(const std::string& membership_file, const std::string& root, int64_t none);

// What may be allocated: less a margin for the process itself, its stacks and the page cache.
int64_t usable_memory();

}  // namespace lathe::cpu
