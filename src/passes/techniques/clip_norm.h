// clip_norm: gradients longer than max_norm, all tensors taken as one vector, are scaled back to it. Behind the
// gradients, so that gates and the norm that is shown see them as they were.
#pragma once

#include <limits>

#include "passes/pass.h"

namespace lathe {

struct ClipNormOptions {          // Of the pass clip_norm.
  double max_norm = 0;            // 0: off
  static void fields(auto&& f) {  // keys of recipes
    f("train.clip_norm", &ClipNormOptions::max_norm, allow::at_least(0),
      "largest norm of all gradients together; 0: off")
        .listed_after("train.update");
  }
  static bool is_on(const ClipNormOptions& o) { return o.max_norm > 0; }                // see OptionsRow
  static ClipNormOptions inert() { return {std::numeric_limits<double>::infinity()}; }  // see OptionsRow
};

StepSet clip_norm(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
