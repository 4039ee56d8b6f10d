// clip_value: every element of a gradient within [-value, value]. Before what looks at whole gradients.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct ClipValueOptions {  // Of the pass clip_value.
  double value = 0;        // 0: off
};

StepSet clip_value(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
