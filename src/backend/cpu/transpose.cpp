#include "ops/transpose.h"

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "backend/cpu/strided_copy.h"

namespace lathe::cpu {
namespace {

std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const Ints from = site.in[0].shape.strides();
  Ints src;
  for (int64_t axis : site.node.get<TransposeParams>().perm) src.push_back(from[static_cast<size_t>(axis)]);
  const StridedCopy copy(site.out[0].dtype, site.out[0].shape, site.out[0].shape.strides(), src);
  return host_kernel([copy, &pool = host.pool, y = host.out[0], x = host.in[0]] { copy.run(pool, y, x); });
}

}  // namespace

std::vector<KernelTable::Row> transpose_rows() {
  return {{"transpose", {"cpu_transpose", accepts_all, nullptr, bind}}};
}

}  // namespace lathe::cpu
