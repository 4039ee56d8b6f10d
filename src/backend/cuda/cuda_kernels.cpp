// Which node runs as what on a card: cuBLASLt and cuDNN first, else a text of backend/kernels.
#include "backend/cuda/cuda_kernels.h"

#include "backend/cuda/cuda_attention.h"
#include "backend/cuda/cuda_conv.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_fallback.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/cuda/cuda_site.h"
#include "backend/kernels/node_calls.h"

namespace lathe {
namespace {

struct CudaBinder {
  static constexpr std::string_view name = "cuda";

  template <size_t kind>
  static std::unique_ptr<Kernel> bind(Device& d, const Site& s, const KernelArgs& args) {
    ProductTiles tiles;
    tiles.style = LaunchStyle::wide;
    return as_cuda(d).bind(range_name(s.node), node_kinds()[kind].calls(s, tiles), args);
  }
};

KernelTable make_table() {
  std::vector<KernelTable::Row> rows = cuda_matmul_rows();
  for (const KernelTable::Row& r : cuda_conv_rows()) rows.push_back(r);
  for (const KernelTable::Row& r : cuda_attention_rows()) rows.push_back(r);
  for (const KernelTable::Row& r : cuda_direct_rows()) rows.push_back(r);
  for (const KernelTable::Row& r : node_candidates<CudaBinder>()) rows.push_back(r);
  return KernelTable(std::move(rows));
}

}  // namespace

const KernelTable& cuda_kernels() {
  static const KernelTable table = make_table();
  return table;
}

}  // namespace lathe
