// Every sample of every op: the kernel agrees with the op's reference loop, gives the same bits with 1, 2 and 8
// threads, on every instruction set, and writes nowhere but to its outputs.
#include "backend/cpu/cpu_backend.h"

#include <gtest/gtest.h>

#include "backend/cpu/isa.h"
#include "backend/cpu/site_test.h"
#include "ops/registry.h"

namespace lathe::cpu {
namespace {

// Relative to the largest value of the tensor. f32 has 6e-8; sums and matrix products of the samples stay within some
// tens of roundings.
constexpr double kTolerance = 4e-6;

class CpuKernels : public testing::TestWithParam<std::string_view> {
 protected:
  void SetUp() override { force_isa(GetParam()); }
  void TearDown() override { force_isa(""); }
};

TEST_P(CpuKernels, AgreesWithReference) {
  int ran = 0;
  for (const OpDef* op : registry().all()) {
    if (cpu_backend().kernels().candidates(op->name()).empty()) continue;
    for (const Sample& s : op->samples()) {
      SCOPED_TRACE(fmt::format("{} {}", op->name(), s.label));
      const auto in = sample_values(s, 11);
      const SiteResult one = run_site(*op, s.params, in, 1);
      if (one.kernel.empty()) {
        EXPECT_NE(one.declined, "");
        continue;
      }
      ++ran;
      const auto want = run_reference(*op, s.params, in);
      ASSERT_EQ(one.out.size(), want.size());
      EXPECT_EQ(one.kernel.find("wrote"), std::string::npos) << one.kernel;
      for (size_t i = 0; i < want.size(); ++i)
        EXPECT_LE(tensor_error(one.out[i], want[i]), kTolerance) << one.kernel << ", output " << i;
      for (int threads : {2, 8})
        EXPECT_EQ(run_site(*op, s.params, in, threads).bytes, one.bytes) << threads << " threads";
    }
  }
  EXPECT_GT(ran, 100);
}

INSTANTIATE_TEST_SUITE_P(Cpu, CpuKernels, testing::ValuesIn(available_isas()),
                         [](const auto& param) { return std::string(param.param); });

TEST(CpuBackend, Describes) {
  const Target t = cpu_backend().target({.threads = 3});
  EXPECT_EQ(t.threads, 3);
  EXPECT_GT(t.memory, int64_t{64} << 20);
  EXPECT_TRUE(t.is_native("add"));
  EXPECT_TRUE(t.is_native("matmul"));
  EXPECT_THROW(cpu_backend().open({.index = 1}), UserError);
  EXPECT_EQ(cpu_backend().open({.threads = 2})->target().threads, 2);
}

}  // namespace
}  // namespace lathe::cpu
