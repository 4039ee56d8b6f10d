// sam: the gradient is taken where a step of length rho uphill leads to (sharpness-aware minimisation, Foret et al.,
// 2021). The batch and the dropout are the same there; running statistics are those of the first pass through the net.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct SamOptions {  // Of the pass sam.
  double rho = 0;    // 0: off
};

StepSet sam(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
