#include "backend/cpu/isa.h"

#include <hwy/highway.h>

#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/error.h"

namespace lathe::cpu {

namespace {

struct Isa {
  std::string_view name;
  int64_t target;
};

// Best first, as Highway orders its targets.
constexpr Isa kIsas[] = {
    {"avx512", HWY_AVX3}, {"avx2", HWY_AVX2}, {"sse4", HWY_SSE4}, {"neon", HWY_NEON}, {"scalar", HWY_SCALAR},
};

// Targets of the machine that are compiled in, without the effect of force_isa.
int64_t machine_targets() {
  static const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  return targets;
}

}  // namespace

std::string_view active_isa() {
  const int64_t targets = hwy::SupportedTargets() & HWY_TARGETS;
  for (const Isa& isa : kIsas)
    if (targets & isa.target) return isa.name;
  return "unknown";
}

std::vector<std::string_view> available_isas() {
  std::vector<std::string_view> names;
  for (const Isa& isa : kIsas)
    if (machine_targets() & isa.target) names.push_back(isa.name);
  return names;
}

void force_isa(std::string_view name) {
  const int64_t machine = machine_targets();  // read before the first mock is set
  if (name.empty()) {
    hwy::SetSupportedTargetsForTest(0);
    return;
  }
  for (const Isa& isa : kIsas) {
    if (isa.name != name || !(machine & isa.target)) continue;
    hwy::SetSupportedTargetsForTest(isa.target);
    return;
  }
  std::string names;
  for (const std::string_view have : available_isas()) names += (names.empty() ? "" : ", ") + std::string(have);
  throw UserError(fmt::format("instruction set: expected one of {}, got \"{}\"", names, name));
}

void force_isa_from_environment() {
  const char* name = std::getenv("LATHE_ISA");
  if (name && *name) force_isa(name);
}

}  // namespace lathe::cpu
