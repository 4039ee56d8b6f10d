// random_uniform, and dropout as one kernel with it.
#include "backend/cpu/random_uniform.h"

#include <algorithm>

#include "backend/cpu/families.h"
#include "backend/cpu/host_kernel.h"
#include "base/checked.h"
#include "ops/dropout.h"
#include "ops/random_uniform.h"

namespace lathe::cpu {
namespace {

constexpr int64_t kBlocksPerTask = 8;

// Calls f(key, sample, begin, count) for pieces of every sample's n numbers.
template <class F>
void for_each_piece(ThreadPool& pool, int64_t samples, int64_t n, const int64_t* key, const int64_t* index,
                    uint32_t stream, F&& f) {
  const int64_t pieces = ceil_div(n, kUniformBlock);
  pool.run_blocks(samples * pieces, kBlocksPerTask, [&](int64_t first, int64_t last) {
    for (int64_t u = first; u < last; ++u) {
      const int64_t b = u / pieces, begin = u % pieces * kUniformBlock;
      const UniformKey k = uniform_key(static_cast<uint64_t>(key[0]), stream, static_cast<uint32_t>(key[1]),
                                       static_cast<uint32_t>(index[b]));
      f(k, b, begin, std::min(kUniformBlock, n - begin));
    }
  });
}

std::unique_ptr<Kernel> bind_uniform(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  if (site.out[0].numel() == 0) return host_kernel([] {});
  const int64_t samples = site.out[0].shape[0], n = site.out[0].numel() / samples;
  const uint32_t stream = static_cast<uint32_t>(site.node.get<RandomUniformParams>().stream);
  return host_kernel([=, &pool = host.pool, y = host.y<float>(), key = host.x<int64_t>(0), index = host.x<int64_t>(1)] {
    for_each_piece(pool, samples, n, key, index, stream,
                   [&](const UniformKey& k, int64_t b, int64_t begin, int64_t count) {
                     fill_uniform(k, y + b * n + begin, begin, count);
                   });
  });
}

std::string accepts_dropout(const Site& site) {
  if (site.in[0].dtype != DType::f32) return fmt::format("only f32, got {}", to_string(site.in[0].dtype));
  return "";
}

std::unique_ptr<Kernel> bind_dropout(Device& device, const Site& site, const KernelArgs& args) {
  const HostArgs host(device, args);
  if (site.out[0].numel() == 0) return host_kernel([] {});
  const auto& p = site.node.get<DropoutParams>();
  const int64_t samples = site.out[0].shape[0], n = site.out[0].numel() / samples;
  const float rate = static_cast<float>(p.rate), scale = static_cast<float>(1 / (1 - p.rate));
  const uint32_t stream = static_cast<uint32_t>(p.stream);
  return host_kernel([=, &pool = host.pool, y = host.y<float>(), x = host.x<float>(0), key = host.x<int64_t>(1),
                      index = host.x<int64_t>(2)] {
    for_each_piece(pool, samples, n, key, index, stream,
                   [&](const UniformKey& k, int64_t b, int64_t begin, int64_t count) {
                     drop_uniform(k, y + b * n + begin, x + b * n + begin, begin, count, rate, scale);
                   });
  });
}

}  // namespace

std::vector<KernelTable::Row> random_uniform_rows() {
  return {{"random_uniform", {"cpu_philox", accepts_all, nullptr, bind_uniform}},
          {"dropout", {"cpu_dropout", accepts_dropout, nullptr, bind_dropout}, kWidened}};
}

}  // namespace lathe::cpu
