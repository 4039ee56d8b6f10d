// Attention in 16 bits and its gradient through cuDNN, which fuses the whole graph of operations into one kernel.
#pragma once

#include "backend/backend.h"

namespace lathe {

std::vector<KernelTable::Row> cuda_attention_rows();

}  // namespace lathe
