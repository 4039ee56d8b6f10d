// The certificate: what a ProgramSet needs and does, for people and for machines. Bytes are exact: a run allocates
// the arena, the scratch memory of collectives, and nothing more on the device.
#pragma once

#include <string>

#include "plan/program.h"

namespace lathe {

// Memory by class for each Program, then for each Program its launches: kernel, GFLOP, bytes moved, who declined and
// why.
std::string certificate(const ProgramSet&);
std::string memory_table(const ProgramSet&);  // the first part alone

// {"arena_bytes", "segments", "communication_bytes", "state": [...], "programs": [{"name", "memory": {...}, "launches":
// [...]}]} as text.
std::string certificate_text_json(const ProgramSet&);

}  // namespace lathe
