// gate: a step with a non-finite loss or gradient changes nothing. Every update of state that is gated becomes a select
// between the new value and the old one.
//
// after_all: one flag over the loss and all gradients. at_gradient: an update that depends on one gradient takes the
// flag of that gradient and of the loss, so that gradients need not live together; what depends on several or none, but
// is no running statistic (the count of steps), takes the flag of all; running statistics take that of the loss.
// Adds the metrics "grad_norm" and "accepted". The loss is the metric "loss" of the graph.
#pragma once

#include "passes/pass.h"

namespace lathe {

struct GateOptions {              // Of the pass gate.
  std::string update = "auto";    // when: see the top of the file; auto: at_gradient, unless other options forbid it
  std::string on_nan = "stop";    // what the loop does after a refused step
  int64_t nan_patience = 3;       // refused steps in a row that end it all the same
  static void fields(auto&& f) {  // keys of recipes
    f("train.update", &GateOptions::update, allow::one_of({"after_all", "at_gradient", "auto"}),
      "when weights change: after all gradients are known, each at its gradient (less memory), or as allowed")
        .listed_after("train.accumulate")
        .is_stable();
    f("train.on_nan", &GateOptions::on_nan, allow::one_of({"stop", "skip"}),
      "what a non-finite loss or gradient does: end the run, or skip the update")
        .listed_after("train.loss_scale_growth");
    f("train.nan_patience", &GateOptions::nan_patience, allow::range(1, 1e6),
      "skipped updates in a row that end the run", skips, "train.on_nan = \"skip\"");
  }
  static bool skips(const GateOptions& o) { return o.on_nan == "skip"; }  // a refused step is passed over
  static void check(const PassOptions&, RuleReport&);                     // whether at_gradient can be
};

StepSet gate(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
