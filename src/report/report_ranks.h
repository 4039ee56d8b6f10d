// Parts of a report about the ranks of a run.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "io/page/report.h"

namespace lathe {

// A table of what each rank did, from the run's summary; and, where some steps were profiled, one of them as a timeline
// with a lane for each rank. Nothing of a run on one rank.
std::vector<io::ReportPart> rank_parts(const std::string& run, const nlohmann::json& summary);

}  // namespace lathe
