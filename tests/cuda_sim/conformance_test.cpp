// Every op on the simulated card, through the real cuda backend.
#include "run/conformance.h"

#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "sim.h"

namespace lathe {
namespace {

TEST(CudaSim, EveryOpAgreesWithItsReference) {
  setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
  const cuda::Api api = sim::simulator_api();
  const CudaBackend backend(&api);
  const int64_t before = sim::live_allocations();
  sim::set_order_check(true);
  const ConformanceReport report = run_conformance(backend, {});
  sim::set_order_check(false);
  EXPECT_EQ(report.failed(), 0) << to_text(report);
  for (const OpConformance& op : report.ops) {
    EXPECT_GT(op.passed, 0) << op.op << ": no case ran";
    for (const auto& d : op.declines) ADD_FAILURE() << op.op << " (" << d.samples.front() << "): " << d.reason;
  }
  std::printf("%s: %zu ops, %d cases passed, %d failed, %d declined\n", report.device.c_str(), report.ops.size(),
              report.passed(), report.failed(), report.declined());
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
  EXPECT_EQ(sim::live_allocations(), before);
  if (getenv("LATHE_TEST_VERBOSE")) printf("%s", to_text(report).c_str());
}

}  // namespace
}  // namespace lathe
