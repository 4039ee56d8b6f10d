// accumulate: a training step becomes two: "accumulate", which adds the gradients of a micro-batch to accumulators, and
// "update", which applies and clears them; a step "gen" becomes "gen_accumulate" and, in a set with several updates,
// "update_gen". Steps whose updates are the same graph (those of tail batches) share it, and it stands behind the last
// of them; UserError where two update one parameter in different ways. What depends on no gradient (loss, running
// statistics) stays with the micro-batch.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct AccumulateOptions {        // Of the pass accumulate.
  int64_t batches = 1;            // micro-batches of an optimizer step; 1: the step stays whole
  static void fields(auto&& f) {  // keys of recipes
    f("train.accumulate", &AccumulateOptions::batches, allow::range(1, 65536),
      "batches whose gradients are added before an update")
        .listed_after("train.batch_size")
        .is_stable();
  }
  static bool is_on(const AccumulateOptions& o) { return o.batches > 1; }  // see OptionsRow
};

StepSet accumulate(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
