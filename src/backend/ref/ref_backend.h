// ref: every op's reference loop as a kernel, on host memory, in f64. The oracle of the other backends; never
// optimised.
#pragma once

#include "backend/backend.h"

namespace lathe {

const Backend& ref_backend();
// The rows of the table, for a backend on host memory that lets `ref` run what it has no kernel for.
std::vector<KernelTable::Row> ref_kernels();

}  // namespace lathe
