#include "ops/slice.h"

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "backend/cpu/strided_copy.h"

namespace lathe::cpu {
namespace {

std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  if (site.out[0].numel() == 0) return host_kernel([] {});
  const auto& p = site.node.get<SliceParams>();
  Ints src = site.in[0].shape.strides();
  int64_t start = 0;
  for (size_t d = 0; d < src.size(); ++d) {
    start += p.starts[d] * src[d];
    src[d] *= p.steps[d];
  }
  const DType t = site.out[0].dtype;
  const StridedCopy copy(t, site.out[0].shape, site.out[0].shape.strides(), src);
  return host_kernel(
      [copy, &pool = host.pool, y = host.out[0], x = host.in[0] + start * size_of(t)] { copy.run(pool, y, x); });
}

}  // namespace

std::vector<KernelTable::Row> slice_rows() { return {{"slice", {"cpu_slice", accepts_all, nullptr, bind}}}; }

}  // namespace lathe::cpu
