// clip_norm: gradients longer than max_norm, all tensors taken as one vector, are scaled back to it. Behind the
// gradients, so that gates and the norm that is shown see them as they were.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct ClipNormOptions {  // Of the pass clip_norm.
  double max_norm = 0;    // 0: off
};

StepSet clip_norm(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
