#include "peak/peak.h"

#include <algorithm>

#include "backend/kernels/binary_cache.h"
#include "base/stopwatch.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "peak/peak_store.h"
#include "plan/plan.h"
#include "session/session.h"

namespace lathe {
namespace {

// The best of a few runs, for about `budget` seconds after one to warm up.
double best_seconds(const Backend& backend, const DeviceOptions& options, Graph g, double budget) {
  const Target target = backend.target(options);
  std::vector<Graph> graphs;
  graphs.push_back(std::move(g));
  Session session({}, plan(std::move(graphs), target, backend.kernels()), backend.open(options),
                  {.slots = 1, .snapshot = false});
  double best = 1e30, spent = 0;
  for (int i = 0; i < 3 || spent < budget; ++i) {
    const std::vector<double> seconds = session.executor().profile(0, 0);
    const double s = seconds[0];
    if (i > 0) best = std::min(best, s);
    spent += s;
    if (i > 200) break;
  }
  return best;
}

}  // namespace

Peak measure_peak(const Backend& backend, const DeviceOptions& options) {
  Peak peak;
  {
    const int64_t n = 1536;
    Builder b("peak_flops");
    const Value x = b.input({DType::f32, {n, n}}, InputKind::batch, "x"),
                y = b.input({DType::f32, {n, n}}, InputKind::batch, "y");
    b.output(matmul(x, y), OutputKind::result, "z");
    const double s = best_seconds(backend, options, b.finish(), 0.3);
    peak.flops_per_second = 2.0 * static_cast<double>(n) * static_cast<double>(n) * static_cast<double>(n) / s;
  }
  {
    const int64_t n = int64_t{1} << 25;
    Builder b("peak_bandwidth");
    const Value x = b.input({DType::f32, {n}}, InputKind::batch, "x");
    b.output(neg(x), OutputKind::result, "y");
    const double s = best_seconds(backend, options, b.finish(), 0.2);
    peak.bytes_per_second = 8.0 * static_cast<double>(n) / s;
  }
  return keep_best_peak(BinaryCache::default_folder(), peak_machine(backend, options), peak);
}

TransferRate measure_transfer(const Backend& backend, const DeviceOptions& options) {
  TransferRate rate;
  const auto device = backend.open(options);
  if (device->target().host_memory) return rate;
  const Buffer there{0, 0, std::min<int64_t>(int64_t{64} << 20, device->target().largest_allocation)};
  device->allocate({&there.bytes, 1});
  std::byte* here = device->allocate_staging(there.bytes);
  Stream& stream = device->stream(Lane::transfer);
  const auto best = [&](auto&& copy) {
    double seconds = 1e30;
    for (int i = 0; i < 6; ++i) {
      const Stopwatch start;
      copy();
      stream.synchronize();
      if (i > 0) seconds = std::min(seconds, start.seconds());
    }
    return static_cast<double>(there.bytes) / seconds;
  };
  rate.to_device = best([&] { stream.copy_in(there, here); });
  rate.from_device = best([&] { stream.copy_out(here, there); });
  return rate;
}

}  // namespace lathe
