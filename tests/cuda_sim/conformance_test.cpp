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
  const ConformanceReport report = run_conformance(backend, {});
  EXPECT_EQ(report.failed(), 0) << to_text(report);
  EXPECT_GT(report.passed(), 100) << to_text(report);
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
  EXPECT_EQ(sim::live_allocations(), before);
  if (getenv("LATHE_TEST_VERBOSE")) printf("%s", to_text(report).c_str());
}

}  // namespace
}  // namespace lathe
