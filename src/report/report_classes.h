// Parts of a report about a net that gives each sample a class.
#pragma once

#include <string>
#include <vector>

#include "compile/compile.h"
#include "data/source.h"
#include "io/page/report.h"

namespace lathe {

// Confusion matrix, the pairs that are confused most often, pictures; what there is of it. `set`: its
// name, "test"; `names` of the classes, in their order, or empty.
std::vector<io::ReportPart> class_parts(Executor&, const Compiled&, const data::Source&, std::string_view set,
                                        const std::vector<std::string>& names);

}  // namespace lathe
