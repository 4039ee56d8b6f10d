// Translation validation: runs a graph before and after each pass on the interpreter, in f64, and names the first pass
// that changes a number. Before autodiff a graph cannot run: its derivatives are compared with finite differences.
// Behind `lathe selftest --passes`.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/interpret.h"
#include "passes/pass.h"

namespace lathe {

struct PassCheck {        // One pass on one graph.
  std::string name;       // of the pass
  bool compared = false;  // false: the pass changed nothing, or the graph after it still holds `grad` and cannot run
  double error = 0;       // largest relative error of an output, over its largest element; autodiff: of the derivative
  std::string output;     // which
};

struct PassVerdict {                             // All passes on one graph.
  std::vector<PassCheck> passes;                 // in order
  std::string first_bad;                         // empty: every pass keeps the numbers
  std::string why;                               // error of the first bad pass in words
  bool ok() const { return first_bad.empty(); }  // whether all keep the numbers
};

using InputMaker = std::function<std::vector<HostTensor>(const Graph&, uint64_t seed)>;  // inputs of a graph for a seed

// `make_inputs` defaults to random_inputs().
PassVerdict validate_passes(const Graph&, std::span<const PassEntry>, const PassContext&, uint64_t seed = 1,
                            const InputMaker& make_inputs = {});

}  // namespace lathe
