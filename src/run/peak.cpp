#include "run/peak.h"

#include <algorithm>
#include <chrono>

#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "plan/plan.h"
#include "run/executor.h"

namespace lathe {
namespace {

// The best of a few runs, for about `budget` seconds after one to warm up.
double best_seconds(const Backend& backend, const DeviceOptions& options, Graph g, double budget) {
  const Target target = backend.target(options);
  std::vector<Graph> graphs;
  graphs.push_back(std::move(g));
  Executor e(plan(std::move(graphs), target, backend.kernels()), backend.open(options),
             {.slots = 1, .snapshot = false});
  double best = 1e30, spent = 0;
  for (int i = 0; i < 3 || spent < budget; ++i) {
    const std::vector<double> seconds = e.profile(0, 0);
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
  return peak;
}

}  // namespace lathe
