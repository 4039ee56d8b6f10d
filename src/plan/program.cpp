#include "plan/program.h"

#include <algorithm>

namespace lathe {

std::string_view to_string(MemoryClass c) {
  switch (c) {
    case MemoryClass::weights: return "weights";
    case MemoryClass::optimizer: return "optimizer";
    case MemoryClass::gradients: return "gradients";
    case MemoryClass::activations: return "activations";
    case MemoryClass::workspace: return "workspace";
    case MemoryClass::staging: return "staging";
    case MemoryClass::communication: return "communication";
  }
  return "?";
}

bool Program::has_lanes() const {
  return std::ranges::any_of(launches, [](const Launch& l) { return l.lane != Lane::compute; });
}

const Program* ProgramSet::find(std::string_view name) const {
  for (const Program& p : programs)
    if (p.name == name) return &p;
  return nullptr;
}

Recomputed recomputed(const Program& p) {
  Recomputed out;
  double all = 0;
  for (const Launch& l : p.launches) {
    all += l.cost.flops;
    if (!l.again) continue;
    ++out.launches;
    out.flops += l.cost.flops;
  }
  if (all > out.flops) out.flops_percent = 100 * out.flops / (all - out.flops);
  return out;
}

}  // namespace lathe
