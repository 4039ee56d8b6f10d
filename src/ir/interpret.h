// The oracle: runs a graph with the ops' reference loops, every value held in f64.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace lathe {

struct HostTensor {          // A tensor in the host's memory.
  TensorType type;           // what it stands for
  std::vector<double> data;  // dense, row-major, whatever the type
};

enum class Precision {  // How the interpreter keeps values.
  exact,    // floats keep f64 between nodes, whatever their dtype: for gradient checks and for comparing passes
  rounded,  // every value is rounded to its dtype: what a device that stores f32 would see
};

// `inputs` in the order of graph.inputs; returns values in the order of graph.outputs.
std::vector<HostTensor> interpret(const Graph&, const std::vector<HostTensor>& inputs, Precision);

// The same for all ranks of a run at once; graphs and inputs by rank. Each rank runs to its next collective; there all
// must have come to the same one, of fitting types. UserError where they have not: each rank would wait for ever. It
// names the ranks and what they wait for.
std::vector<std::vector<HostTensor>> interpret_ranks(std::span<const Graph* const>,
                                                     const std::vector<std::vector<HostTensor>>& inputs, Precision);

// Largest difference of two tensors, relative to the largest finite element of `expected`; infinite where NaN or
// infinity stands in one only, where types differ, or where integers or booleans differ at all.
double relative_error(const HostTensor& actual, const HostTensor& expected);

}  // namespace lathe
