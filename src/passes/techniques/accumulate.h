// accumulate: a training step becomes two: "accumulate", which adds the gradients of a micro-batch to accumulators, and
// "update", which applies and clears them. Tail batches accumulate alike and share the update. What depends on no
// gradient (loss, running statistics) stays with the micro-batch.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct AccumulateOptions {  // Of the pass accumulate.
  int64_t batches = 1;      // micro-batches of an optimizer step; 1: the step stays whole
};

StepSet accumulate(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
