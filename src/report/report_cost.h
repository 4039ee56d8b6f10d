// Parts of a report about what a step costs: memory as planned, time as measured.
#pragma once

#include <vector>

#include "compile/compile.h"
#include "data/source.h"
#include "io/page/report.h"

namespace lathe {

// Of every Program of a step: training alone, or accumulation and update.
std::vector<io::ReportPart> memory_parts(const Compiled&);

// Runs them with samples of `train`, so the state is another one afterwards.
std::vector<io::ReportPart> time_parts(Executor&, const Compiled&, const data::Source& train);

}  // namespace lathe
