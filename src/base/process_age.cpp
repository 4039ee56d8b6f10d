#include "base/process_age.h"

#include <time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace lathe {

double process_age() {
  char line[1024] = "";
  std::FILE* f = std::fopen("/proc/self/stat", "re");
  if (!f) return 0;
  const size_t length = std::fread(line, 1, sizeof line - 1, f);
  std::fclose(f);
  line[length] = '\0';
  // Field 2 is the name in brackets, which may hold anything; field 22 is the start, in ticks since the boot.
  const char* at = std::strrchr(line, ')');
  for (int field = 2; at && field < 22; ++field) at = std::strchr(at + 1, ' ');
  if (!at) return 0;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) -
         static_cast<double>(std::strtoull(at, nullptr, 10)) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

double process_cpu_seconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) + 1e-9 * static_cast<double>(used.tv_nsec);
}

}  // namespace lathe
