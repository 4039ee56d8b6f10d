// Parts of report.html for nets that predict numbers or pixels.
#pragma once

#include <vector>

#include "compile/compile.h"
#include "io/page/report.h"

namespace lathe {

// What the net makes of a set of this name: predicted and true numbers as a chart, or input, output and truth as
// pictures. Empty for classes. Runs the Program "predict".
std::vector<io::ReportPart> label_parts(Executor&, const Compiled&, const data::Source&, std::string_view set);

}  // namespace lathe
