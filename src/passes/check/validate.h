// Translation validation: runs a step set before and after each pass on the interpreter, in f64, and names the first
// pass that changes a number. Behind `lathe selftest --passes`.
//
// A set runs as the loop runs it: its graphs in order, state carried from one to the next by name; so a step that was
// split into accumulate and update is compared with the whole one. Every write of a state, every metric and result of
// every graph must be there again. Sets that still hold `grad` are lowered by autodiff for it. A pass that promises to
// change numbers (clipping, averages) is proved to be the identity with its inert options, and step inputs that it adds
// at 1. Autodiff is compared with finite differences too.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "passes/check/run_set.h"

namespace lathe {

struct PassCheck {        // One pass on one set.
  std::string name;       // of the pass
  bool compared = false;  // false: the pass changed nothing
  double error = 0;       // largest relative error of an output, over its largest element; autodiff: of the derivative
  std::string output;     // which
  bool lost = false;      // it is not there any more
};

struct PassVerdict {                             // All passes on one set.
  std::vector<PassCheck> passes;                 // in order
  std::string first_bad;                         // empty: every pass keeps the numbers
  std::string why;                               // error of the first bad pass in words
  bool ok() const { return first_bad.empty(); }  // whether all keep the numbers
};

// `make_inputs` defaults to random_inputs().
PassVerdict validate_passes(const StepSet&, std::span<const PassEntry>, const PassContext&, uint64_t seed = 1,
                            const InputMaker& make_inputs = {});

// The same for what divides the steps among ranks: the set as all ranks together run it, after `partition` and after
// each pass behind it, against the set before `partition`. Also names ranks that would wait for each other.
PassVerdict validate_ranks(const StepSet&, std::span<const PassEntry>, const PassContext&, int ranks, uint64_t seed = 1,
                           const InputMaker& make_inputs = {});

}  // namespace lathe
