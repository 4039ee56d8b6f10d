#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "ops/full.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kGrain = 1 << 15;

std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const Shape& s = site.out[0].shape;
  const int axis = normalize_axis(site.node.get<IotaParams>().axis, s.ndim(), "iota");
  const int64_t stride = s.strides()[static_cast<size_t>(axis)], size = s[axis];
  const DType t = site.out[0].dtype;
  return dispatch(t, [&](auto zero) {
    using T = decltype(zero);
    return host_kernel([=, &pool = host.pool, y = host.y<T>(), n = s.numel()] {
      pool.run_blocks(n, kGrain, [&](int64_t begin, int64_t end) {
        int64_t inner = begin % stride, value = begin / stride % size;
        for (int64_t i = begin; i < end; ++i) {
          y[i] = static_cast<T>(round_to(t, static_cast<double>(value)));
          if (++inner < stride) continue;
          inner = 0;
          if (++value == size) value = 0;
        }
      });
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> iota_rows() { return {{"iota", {"cpu_iota", accepts_all, nullptr, bind}}}; }

}  // namespace lathe::cpu
