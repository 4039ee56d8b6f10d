#include "ops/arg_max.h"

#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kTaskElements = 1 << 15;

std::unique_ptr<Kernel> bind(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const Shape& s = site.in[0].shape;
  const int axis = static_cast<int>(site.node.get<ArgMaxParams>().axis);
  const int64_t n = s[axis], inner = s.strides()[static_cast<size_t>(axis)];
  return dispatch(site.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return host_kernel([=, &pool = host.pool, y = host.y<int32_t>(), x = host.x<T>(0), count = site.out[0].numel()] {
      pool.run_blocks(count, std::max<int64_t>(1, kTaskElements / n), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T* row = x + i / inner * n * inner + i % inner;
          auto best = static_cast<Compute<T>>(row[0]);
          int64_t at = 0;
          for (int64_t k = 1; k < n && best == best; ++k) {  // the first NaN wins, and ends the search
            const auto v = static_cast<Compute<T>>(row[k * inner]);
            if (v > best || v != v) {
              best = v;
              at = k;
            }
          }
          y[i] = static_cast<int32_t>(at);
        }
      });
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> arg_max_rows() { return {{"arg_max", {"cpu_arg_max", accepts_all, nullptr, bind}}}; }

}  // namespace lathe::cpu
