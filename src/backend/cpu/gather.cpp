// gather and scatter_add. Indices outside of the table are clamped: memory stays safe, the result is of no use.
#include "ops/gather.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "backend/cpu/loop/loop_ops.h"
#include "base/checked.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kTaskBytes = 1 << 17;
constexpr int64_t kStripBytes = 512;  // of a row, owned by one task of scatter_add

template <class I>
int64_t row_at(const I* indices, int64_t i, int64_t rows) {
  return std::clamp<int64_t>(static_cast<int64_t>(indices[i]), 0, rows - 1);
}

template <class F>
auto dispatch_index(DType t, F&& f) {
  return t == DType::i64 ? f(int64_t{}) : f(int32_t{});
}

std::unique_ptr<Kernel> bind_gather(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t count = site.in[1].numel(), rows = site.in[0].shape[0];
  if (site.out[0].numel() == 0) return host_kernel([] {});
  const int64_t bytes = site.out[0].bytes() / count;
  return dispatch_index(site.in[1].dtype, [&](auto index) {
    const auto* indices = host.x<decltype(index)>(1);
    return host_kernel([=, &pool = host.pool, y = host.out[0], x = host.in[0]] {
      pool.run_blocks(count, std::max<int64_t>(1, kTaskBytes / bytes), [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          std::memcpy(y + i * bytes, x + row_at(indices, i, rows) * bytes, static_cast<size_t>(bytes));
      });
    });
  });
}

// A task owns a strip of columns and adds the updates to it in their order.
std::unique_ptr<Kernel> bind_scatter_add(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  const int64_t count = site.in[0].numel(), rows = site.node.get<ScatterAddParams>().rows;
  const DType t = site.out[0].dtype;
  const int64_t total = site.out[0].bytes(), size = size_of(t), width = count > 0 ? site.in[1].numel() / count : 0;
  const LoopFn add = find_loop_fn(ScalarOp::add, t, t);
  return dispatch_index(site.in[0].dtype, [&](auto index) {
    const auto* indices = host.x<decltype(index)>(0);
    return host_kernel([=, &pool = host.pool, y = host.out[0], x = host.in[1]] {
      pool.run_blocks(total, kTaskBytes,
                      [&](int64_t begin, int64_t end) { std::memset(y + begin, 0, static_cast<size_t>(end - begin)); });
      pool.run_blocks(width, kStripBytes / size, [&](int64_t begin, int64_t end) {
        for (int64_t i = 0; i < count; ++i) {
          std::byte* row = y + (row_at(indices, i, rows) * width + begin) * size;
          add(row, row, x + (i * width + begin) * size, nullptr, end - begin);
        }
      });
    });
  });
}

}  // namespace

std::vector<KernelTable::Row> gather_rows() {
  return {{"gather", {"cpu_gather", accepts_all, nullptr, bind_gather}},
          {"scatter_add", {"cpu_scatter_add", accepts_wide, nullptr, bind_scatter_add}, kWidened}};
}

}  // namespace lathe::cpu
