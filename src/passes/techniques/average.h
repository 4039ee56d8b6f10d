// average: training keeps averages of the weights that it trains and of running statistics beside them; evaluation and
// prediction read the averages instead. The share of the new value in the average is the step input "average": of
// exponential and of equal shares (EMA, SWA) alike. Last of the techniques: it reads what a gated step leaves behind.
#pragma once

#include <string_view>

#include "passes/pass.h"

namespace lathe {

struct AverageOptions {  // Of the pass average.
  bool on = false;       // whether averages are kept
};
inline constexpr std::string_view kAveragePrefix = "average.";  // of the names of their state

StepSet average(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
