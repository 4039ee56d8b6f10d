// Every node that backend/kernels has a text for, bound on an OpenCL device.
#include "backend/opencl/opencl_kernels.h"

#include "backend/kernels/node_calls.h"
#include "backend/opencl/opencl_device.h"

namespace lathe {
namespace {

template <size_t kind>
std::unique_ptr<Kernel> bind(Device& d, const Site& s, const KernelArgs& args) {
  auto& device = static_cast<OpenClDevice&>(d);
  return device.bind(node_kinds()[kind].calls(s, device.tiles()), args);
}

template <size_t... kinds>
std::array<decltype(Candidate::bind), sizeof...(kinds)> binders(std::index_sequence<kinds...>) {
  return {bind<kinds>...};
}

KernelTable make_table() {
  const auto bind_kind = binders(std::make_index_sequence<kNodeKinds>());
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const NodeKind& k : node_kinds()) out.push_back(fmt::format("opencl_{}", k.name));
    return out;
  }();
  std::vector<KernelTable::Row> rows;
  for (const NodeRow& row : node_rows()) {
    const NodeKind& kind = node_kinds()[row.kind];
    rows.push_back({row.op, {names[row.kind], kind.accepts, kind.workspace, bind_kind[row.kind]}});
  }
  return KernelTable(std::move(rows));
}

}  // namespace

const KernelTable& opencl_kernels() {
  static const KernelTable table = make_table();
  return table;
}

}  // namespace lathe
