#include "plan/program.h"

namespace lathe {

std::string_view to_string(MemoryClass c) {
  switch (c) {
    case MemoryClass::weights: return "weights";
    case MemoryClass::optimizer: return "optimizer";
    case MemoryClass::gradients: return "gradients";
    case MemoryClass::activations: return "activations";
    case MemoryClass::workspace: return "workspace";
    case MemoryClass::staging: return "staging";
  }
  return "?";
}

const Program* ProgramSet::find(std::string_view name) const {
  for (const Program& p : programs)
    if (p.name == name) return &p;
  return nullptr;
}

}  // namespace lathe
