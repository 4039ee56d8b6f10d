// Convolutions through cuDNN's graph API: conv2d, conv2d_dx, conv2d_dw and conv2d with a chain behind it.
#pragma once

#include "backend/backend.h"

namespace lathe {

std::vector<KernelTable::Row> cuda_conv_rows();

}  // namespace lathe
