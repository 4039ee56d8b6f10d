// Work that all ranks of one process do together.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "comm/group.h"

namespace lathe::comm {

// Calls `work` with each of the groups (comm/threads.h), in a thread of its own but for the first one, which the
// caller's thread does. A rank that throws ends all others. What the first of them threw is thrown again when all have
// ended, with the rank in the message where it is an Error.
void run_ranks(std::span<const std::unique_ptr<Group>> groups, const std::function<void(Group&)>& work);

}  // namespace lathe::comm
