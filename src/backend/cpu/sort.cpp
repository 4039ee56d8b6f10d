#include "ops/sort.h"

#include <algorithm>
#include <numeric>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kSortTask = 1 << 12;  // elements

std::unique_ptr<Kernel> bind_arg_sort(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t n = site.in[0].shape.dim(-1), rows = n > 0 ? site.in[0].numel() / n : 0;
  const bool descending = site.node.get<SortParams>().descending;
  return dispatch(site.in[0].dtype, [&](auto zero) {
    using T = decltype(zero);
    return host_kernel([=, &pool = host.pool, y = host.y<int32_t>(), x = host.x<T>(0)] {
      pool.run_blocks(rows, std::max<int64_t>(1, n > 0 ? kSortTask / n : 1), [&](int64_t begin, int64_t end) {
        for (int64_t row = begin; row < end; ++row) {
          int32_t* order = y + row * n;
          std::iota(order, order + n, 0);
          // std::stable_sort would allocate; with the index as the last word the order is total, and the same.
          std::sort(order, order + n, [&](int32_t i, int32_t j) {
            const auto a = static_cast<Compute<T>>(x[row * n + i]), b = static_cast<Compute<T>>(x[row * n + j]);
            const bool a_nan = a != a, b_nan = b != b;
            if (a_nan != b_nan) return b_nan;
            if (a_nan || a == b) return i < j;
            return descending ? b < a : a < b;
          });
        }
      });
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> sort_rows() {
  return {{"arg_sort", {"cpu_arg_sort", accepts_all, nullptr, bind_arg_sort}}};
}

}  // namespace lathe::cpu
