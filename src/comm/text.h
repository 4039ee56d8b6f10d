// Text between ranks, before and between steps: what the first one chose to do, and what each has to tell it.
// Allocates.
#pragma once

#include <string>
#include <vector>

#include "comm/group.h"

namespace lathe::comm {

// What the first rank gave, on every rank; the argument of the others is ignored.
std::string broadcast_text(Group&, const std::string& text);

// What every rank gave, by rank, on the first one; nothing on the others.
std::vector<std::string> gather_text(Group&, const std::string& text);

}  // namespace lathe::comm
