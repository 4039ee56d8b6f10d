// Random well-typed graphs for tests: of passes, and of backends against the interpreter. Equal seeds give equal
// graphs.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/graph.h"
#include "ir/interpret.h"

namespace lathe {

enum class RandomGraphKind {
  mixed,     // any ops on values of any shape
  products,  // sums of products of activations of one value, reshaped and reduced; the gradient is an output
  losses,    // a small net under a custom loss: labels, weights, margins; gradients are outputs, updates or both
  shared,    // values with many readers each, views between them, many outputs, gradients among them
};

struct RandomGraphOptions {
  int nodes = 30;          // calls of op functions; the graph has somewhat more nodes
  bool state = true;       // some parameters are updated from values of the graph
  bool gradient = false;   // a loss and its gradients, as `grad` nodes; updates use them
  bool composites = true;  // softmax and the like
  bool dead_code = true;   // some values reach no output
  // Kinds other than mixed have gradients and composites in any case; `nodes` counts for mixed and shared alone.
  RandomGraphKind kind = RandomGraphKind::mixed;
};

Graph random_graph(uint64_t seed, const RandomGraphOptions& = {});

// Inputs for a graph: floats in [-1, 1] (optimizer state in [0.1, 1], which may stand under a root; step inputs in
// [0.01, 0.1]), integers 0 or 1, which are labels of any classifier.
std::vector<HostTensor> random_inputs(const Graph&, uint64_t seed);

}  // namespace lathe
