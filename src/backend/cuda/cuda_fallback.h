// What runs where a library turns out to have nothing for a node, which is known on the card only: a text of
// backend/kernels, in the workspace that was planned for the library.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cuda_device.h"

namespace lathe {

constexpr std::string_view kFallbackName = "cuda_direct";

// Of matmul, conv2d, conv2d_dx, conv2d_dw, attention, attention_grad.
int64_t fallback_workspace(const Site&);
// `library`: "cuDNN", `lacks`: what it has not, in words; both are noted in the device.
std::unique_ptr<Kernel> bind_fallback(CudaDevice&, const Site&, const KernelArgs&, const std::string& library,
                                      const std::string& lacks);
// As a kernel of its own, where the library is missing or declines: 16-bit products and attention.
std::vector<KernelTable::Row> cuda_direct_rows();

}  // namespace lathe
