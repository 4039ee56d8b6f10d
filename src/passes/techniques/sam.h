// sam: the gradient is taken where a step of length rho uphill leads to (sharpness-aware minimisation, Foret et al.,
// 2021). The batch and the dropout are the same there; running statistics are those of the first pass through the net.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct SamOptions {               // Of the pass sam.
  double rho = 0;                 // 0: off
  static void fields(auto&& f) {  // keys of recipes
    f("train.sam", &SamOptions::rho, allow::range(0, 100),
      "length of the step uphill from which the gradient is taken (sharpness-aware: twice the work); 0: off")
        .listed_after("train.loss");
  }
  static bool is_on(const SamOptions& o) { return o.rho > 0; }  // see OptionsRow
  static SamOptions inert() { return {1e-30}; }                 // see OptionsRow
};

StepSet sam(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
