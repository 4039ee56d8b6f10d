// lookahead: slow weights beside the trained ones (Zhang et al., 2019): every few steps they go part of the way to
// them, and those start again there. How far, in this step, is the step input "lookahead"; 0: not at all.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct LookaheadOptions {  // Of the pass lookahead.
  int64_t every = 0;       // steps between two moves of the slow weights; 0: off
};

StepSet lookahead(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
