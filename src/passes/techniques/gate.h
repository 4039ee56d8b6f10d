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

struct GateOptions {         // Of the pass gate.
  bool at_gradient = false;  // see the top of the file
};

StepSet gate(StepSet, const PassContext&);  // see the top of the file

}  // namespace lathe
