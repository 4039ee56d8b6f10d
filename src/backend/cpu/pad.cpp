#include "ops/pad.h"

#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "backend/cpu/strided_copy.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kGrain = 1 << 16;

// The value everywhere, then the input over it: what is padded is small beside the rest of a step.
std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const auto& p = site.node.get<PadParams>();
  const DType t = site.out[0].dtype;
  Ints dst = site.out[0].shape.strides();
  int64_t start = 0;
  for (size_t d = 0; d < dst.size(); ++d) {
    start += p.low[d] * dst[d];
    dst[d] *= p.interior[d] + 1;
  }
  const StridedCopy copy(t, site.in[0].shape, dst, site.in[0].shape.strides());
  const bool empty = site.in[0].numel() == 0;
  return dispatch(t, [&](auto zero) {
    using T = decltype(zero);
    const T value = static_cast<T>(round_to(t, p.value));
    return host_kernel([=, &pool = host.pool, y = host.y<T>(), x = host.in[0], n = site.out[0].numel()] {
      pool.run_blocks(n, kGrain, [&](int64_t begin, int64_t end) { std::fill(y + begin, y + end, value); });
      if (!empty) copy.run(pool, reinterpret_cast<std::byte*>(y + start), x);
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> pad_rows() { return {{"pad", {"cpu_pad", accepts_all, nullptr, bind}}}; }

}  // namespace lathe::cpu
