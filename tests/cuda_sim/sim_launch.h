// Modules of compiled kernel texts, and how one launch of them runs.
#pragma once

#include <string>
#include <vector>

#include "kernel_prelude.h"
#include "sim_state.h"

namespace lathe::sim {

// Compiles CUDA C++ with the host's compiler to an image for load_image(); equal sources are compiled once. Returns ""
// or the compiler's messages.
std::string compile_source(const std::string& source, std::vector<char>& image);
int prelude_version();  // changes with the prelude, so that images of another one are not taken from a cache

struct SimModule {
  void* library = nullptr;
  SimRuntime** runtime = nullptr;
  const SimKernel* kernels = nullptr;  // ends with a null name
  Address begin = 0, end = 0;          // of the mapped image: group-shared variables are in it
};
SimModule* load_image(const void* image);  // null: not an image
void unload_image(SimModule*);

struct SimFunction {
  SimModule* module = nullptr;
  const SimKernel* kernel = nullptr;
};

// Runs all blocks. `params` are the argument values. Fills in what was touched.
int run_grid(const SimFunction&, SimIndex grid, unsigned threads, std::vector<uint64_t> params, std::vector<Access>&);

}  // namespace lathe::sim
