// lookahead: slow weights beside the trained ones (Zhang et al., 2019): every few steps they go part of the way to
// them, and those start again there. How far, in this step, is the step input "lookahead"; 0: not at all.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct LookaheadOptions {         // Of the pass lookahead.
  int64_t every = 0;              // steps between two moves of the slow weights; 0: off
  double alpha = 0.5;             // part of the way that they move: the step input, in a step in which they do
  static void fields(auto&& f) {  // keys of recipes
    f("optimizer.lookahead", &LookaheadOptions::every, allow::range(0, 1e6),
      "steps after which slow weights go part of the way to the fast ones, which start again from there; 0: off")
        .listed_after("optimizer.weight_decay");
    f("optimizer.lookahead_alpha", &LookaheadOptions::alpha, allow::range(1e-6, 1), "part of the way", is_on,
      "optimizer.lookahead > 0");
  }
  static bool is_on(const LookaheadOptions& o) { return o.every > 0; }  // see OptionsRow
  static LookaheadOptions inert() { return {1}; }                       // see OptionsRow
};

StepSet lookahead(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
