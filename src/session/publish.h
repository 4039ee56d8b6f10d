// Checkpoints of one rank, or of several that write them together: each rank its slices of every file. The files are
// those that one rank would write; the manifest has a hash for each slice.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "comm/group.h"
#include "io/checkpoint.h"

namespace lathe {

// As io::publish_checkpoint(). `group`: null where there is one rank; else every rank calls it with the same files, and
// the other arguments are the first rank's, who alone calls `about` and publishes. When it returns the checkpoint is
// there for all. UserError: the same on all ranks, whoever could not write.
std::string publish_checkpoint(comm::Group* group, io::Fs&, const std::string& dir, std::string_view job_id,
                               const std::function<io::Manifest()>& about, std::span<const io::CheckpointFile> files);

}  // namespace lathe
