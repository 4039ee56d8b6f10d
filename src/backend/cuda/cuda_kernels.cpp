// Which node runs as what on a card: cuBLASLt and cuDNN first, else a text of backend/kernels.
#include "backend/cuda/cuda_kernels.h"

#include <array>
#include <utility>

#include "backend/cuda/cuda_conv.h"
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/cuda_matmul.h"
#include "backend/kernels/node_calls.h"

namespace lathe {
namespace {

ProductTiles wide_tiles() {
  ProductTiles t;
  t.style = LaunchStyle::wide;
  return t;
}

template <size_t kind>
std::unique_ptr<Kernel> bind(Device& d, const Site& s, const KernelArgs& args) {
  return as_cuda(d).bind(s.node.op->name(), node_kinds()[kind].calls(s, wide_tiles()), args);
}

template <size_t... kinds>
std::array<decltype(Candidate::bind), sizeof...(kinds)> binders(std::index_sequence<kinds...>) {
  return {bind<kinds>...};
}

KernelTable make_table() {
  const auto bind_kind = binders(std::make_index_sequence<kNodeKinds>());
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const NodeKind& k : node_kinds()) out.push_back(fmt::format("cuda_{}", k.name));
    return out;
  }();
  std::vector<KernelTable::Row> rows = cuda_matmul_rows();
  for (const KernelTable::Row& r : cuda_conv_rows()) rows.push_back(r);
  for (const NodeRow& row : node_rows()) {
    const NodeKind& kind = node_kinds()[row.kind];
    rows.push_back({row.op, {names[row.kind], kind.accepts, kind.workspace, bind_kind[row.kind]}});
  }
  return KernelTable(std::move(rows));
}

}  // namespace

const KernelTable& cuda_kernels() {
  static const KernelTable table = make_table();
  return table;
}

}  // namespace lathe
