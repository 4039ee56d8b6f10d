// matmul, and fused nodes of kind "matmul".
#pragma once

#include <vector>

#include "backend/backend.h"

namespace lathe::cpu {

std::vector<KernelTable::Row> matmul_rows();

}  // namespace lathe::cpu
