// The oracle: runs a graph with the ops' reference loops, every value held in f64.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace lathe {

struct HostTensor {
  TensorType type;
  std::vector<double> data;
};

enum class Precision {
  exact,    // floats keep f64 between nodes, whatever their dtype: for gradient checks and for comparing passes
  rounded,  // every value is rounded to its dtype: what a device that stores f32 would see
};

// `inputs` in the order of graph.inputs; returns values in the order of graph.outputs.
std::vector<HostTensor> interpret(const Graph&, const std::vector<HostTensor>& inputs, Precision);

}  // namespace lathe
