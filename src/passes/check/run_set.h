// A step set at work on the interpreter, as the loop runs it: its graphs in order, state carried from one to the next
// by name. What proofs of passes compare.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "ir/interpret.h"
#include "passes/pass.h"

namespace lathe {

// Inputs of a graph for a seed; state starts as its row says.
using InputMaker = std::function<std::vector<HostTensor>(const Graph&, const StateTable&, uint64_t seed)>;

using NamedTensors = std::map<std::string, HostTensor>;        // state, by name
using Shown = std::map<std::string, std::vector<HostTensor>>;  // by name, one of each graph that has it
inline constexpr std::string_view kShownState = "state ";      // before the names of state in Shown

bool is_executable(const Graph&);    // no `grad` is left
bool is_executable(const StepSet&);  // in no graph

// The inputs of all sets that one proof runs: equal names have equal values; tail batches are shorter, and have values
// of their own.
class RunInputs {
 public:
  RunInputs(const InputMaker& make, uint64_t seed) : make_(make), seed_(seed) {}  // none: random_inputs()

  // Of a graph of the set; what `state` has comes from there.
  std::vector<HostTensor> of(const StepSet&, const Graph&, const NamedTensors& state);
  void set_began() { began_ = true; }  // a whole set has run

 private:
  HostTensor first_value(const StepSet&, const Input&, HostTensor made) const;

  InputMaker make_;
  uint64_t seed_;
  NamedTensors known_;
  bool began_ = false;
};

// All that the graphs write and show, in their order: each write of a state counts, whether or not another follows.
Shown run_set(StepSet, const PassContext&, RunInputs&);
// The same of all ranks together, of whose sets `sets` are the rank's; `whole`: the set that they were divided from,
// for the inputs; `blocks`: of batches (passes/partition/blocks.h), or 0. UserError: ranks that should have the same
// value have not, or wait for each other for ever.
Shown run_ranks(const std::vector<StepSet>& sets, const StepSet& whole, RunInputs&, int64_t blocks = 0);

// The worst of what `expected` has; what is new in `actual` has no counterpart.
struct ShownError {
  double error = 0;    // relative to the largest element
  std::string output;  // its name
  bool lost = false;   // it is not there any more
};
// `may_go`: of what is not in `actual`, whether that is allowed; none: nothing is.
ShownError compare(const Shown& actual, const Shown& expected,
                   const std::function<bool(const std::string& name)>& may_go = {});

}  // namespace lathe
