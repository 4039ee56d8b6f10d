// clip_value: every element of a gradient within [-value, value]. Before what looks at whole gradients.
#pragma once

#include <limits>

#include "passes/pass.h"

namespace lathe {

struct ClipValueOptions {         // Of the pass clip_value.
  double value = 0;               // 0: off
  static void fields(auto&& f) {  // keys of recipes
    f("train.clip_value", &ClipValueOptions::value, allow::at_least(0), "largest size of a gradient element; 0: off")
        .listed_after("train.clip_norm");
  }
  static bool is_on(const ClipValueOptions& o) { return o.value > 0; }                   // see OptionsRow
  static ClipValueOptions inert() { return {std::numeric_limits<double>::infinity()}; }  // see OptionsRow
};

StepSet clip_value(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
