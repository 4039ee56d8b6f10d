#include "bench/bench_op.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "bench/bench_op_gemm.h"
#include "bench/bench_op_peers.h"
#include "ops/registry.h"

namespace lathe {
namespace {

TEST(BenchOp, SummaryHoldsMedianAndQuartiles) {
  const Timing t = summarize({5, 1, 4, 2, 3});
  EXPECT_DOUBLE_EQ(t.median, 3);
  EXPECT_DOUBLE_EQ(t.low, 2);
  EXPECT_DOUBLE_EQ(t.high, 4);
  EXPECT_DOUBLE_EQ(t.spread(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(summarize({1, 2}).median, 1.5);
  EXPECT_DOUBLE_EQ(summarize({7}).high, 7);
}

TEST(BenchOp, ShapesAreParsedWhole) {
  EXPECT_EQ(parse_bench_shape("64x1024"), (Shape{64, 1024}));
  EXPECT_EQ(parse_bench_shape("7"), (Shape{7}));
  for (const char* bad :
       {"", "x", "64x", "64x0", "64*2", "-1x2", "64x2 ", "99999999999999999999", "4611686018427387904x8"})
    EXPECT_THROW(parse_bench_shape(bad), UserError) << bad;
}

// A case that does not fit its op would only show when somebody measures that op.
TEST(BenchOp, CasesOfAllOpsHaveTypes) {
  for (const OpDef* op : registry().all()) {
    if (!op->runs_alone()) continue;
    const std::vector<Sample> cases = bench_cases(*op);
    EXPECT_FALSE(cases.empty()) << op->name();
    for (const Sample& s : cases) {
      Types in;
      for (const SampleInput& x : s.inputs) in.push_back(x.type);
      EXPECT_NO_THROW({
        for (const TensorType& t : op->infer(in, s.params.get()))
          EXPECT_GT(t.numel(), 0) << op->name() << " " << s.label;
      }) << op->name()
         << " " << s.label;
    }
  }
}

TEST(BenchOp, OtherShapesKeepIndicesInRange) {
  const Sample s = bench_case_of(*registry().find("gather"), "10x4,6");
  EXPECT_EQ(s.inputs[0].type, (TensorType{DType::f32, {10, 4}}));
  EXPECT_LE(s.inputs[1].hi, 3);
  EXPECT_EQ(bench_case_of(*registry().find("add"), "8x8").inputs[1].type.shape, (Shape{8, 8}));
  EXPECT_THROW(bench_case_of(*registry().find("layer_norm"), "8x8"), UserError);
  EXPECT_THROW(bench_case_of(*registry().find("layer_norm"), "8x8,8,9"), UserError);
}

TEST(BenchOp, RunsOnTheCpu) {
  const OpDef& op = *registry().find("softmax");
  const OpBenchRow row = bench_case(op, bench_case_of(op, "16x64"), find_backend("cpu"), {0, 1}, {1e9, 1e9}, 3);
  EXPECT_EQ(row.declined, "");
  ASSERT_FALSE(row.kernels.empty());
  EXPECT_GT(row.seconds.median, 0);
  EXPECT_GT(row.cost.flops, 0);
  const double bytes = row.cost.bytes_read + row.cost.bytes_written;
  EXPECT_GE(bytes, 2 * 16 * 64 * 4);
  EXPECT_NEAR(row.bytes_percent, 100 * bytes / row.seconds.median / 1e9, 1e-6);
}

TEST(BenchOp, ViewsDoNoWork) {
  const OpDef& op = *registry().find("reshape");
  const OpBenchRow row = bench_case(op, bench_cases(op)[0], find_backend("cpu"), {0, 1}, {1e9, 1e9}, 1);
  EXPECT_TRUE(row.kernels.empty());
  EXPECT_EQ(row.declined, "");
}

TEST(BenchGemm, ShapesByNameAndByNumber) {
  EXPECT_GT(gemm_bench_shapes({}).size(), 40u);
  for (const GemmShapeCase& s : gemm_bench_shapes({"gpt-mini/qkv"})) EXPECT_TRUE(s.name.starts_with("gpt-mini/qkv"));
  const auto s = gemm_bench_shapes({"3x5x7", "3x5x7x2:tn"});
  ASSERT_EQ(s.size(), 2u);
  EXPECT_EQ(s[0].k, 7);
  EXPECT_EQ(s[0].batch, 1);
  EXPECT_TRUE(s[1].trans_a && !s[1].trans_b && s[1].batch == 2);
  for (const char* bad : {"no_such_net", "3x5", "3x5x7:x", "3x5x7:nnn", "3x5x7x2x2"})
    EXPECT_THROW(gemm_bench_shapes({bad}), UserError) << bad;
}

TEST(BenchGemm, MissingPeersAreNamed) {
  GemmBenchOptions o;
  o.threads = 1;
  o.rounds = 1;
  o.block_seconds = o.pause_seconds = 0;
  o.peak = false;
  o.openblas = o.onednn = "/nonexistent/library.so";
  const GemmBench b = bench_gemm(gemm_bench_shapes({"8x8x8"}), o);
  ASSERT_EQ(b.contenders.size(), 3u);
  EXPECT_EQ(b.contenders[0].missing, "");
  EXPECT_NE(b.contenders[1].missing.find("LATHE_OPENBLAS"), std::string::npos);
  EXPECT_NE(b.contenders[2].missing.find("bench/peers"), std::string::npos);
  EXPECT_GT(b.rows[0].seconds[0].median, 0);
  EXPECT_EQ(b.rows[0].ratio, 0);
  EXPECT_EQ(b.geometric_mean, 0);
}

// A library that is there but is not the one asked for.
TEST(BenchGemm, OtherLibrariesAreRefused) {
  EXPECT_NE(open_openblas("libm.so.6", 1).missing.find("cblas_sgemm"), std::string::npos);
  EXPECT_NE(open_onednn("libm.so.6", 1).missing.find("dnnl_version"), std::string::npos);
}

// bench_gemm compares every result with Lathe's, so a wrong call of a peer throws here.
TEST(BenchGemm, PeersComputeTheSame) {
  GemmBenchOptions o;
  o.threads = 2;
  o.rounds = 1;
  o.block_seconds = o.pause_seconds = 0;
  o.peak = false;
  if (const char* path = std::getenv("LATHE_ONEDNN")) o.onednn = path;
  if (const char* path = std::getenv("LATHE_OPENBLAS")) o.openblas = path;
  const GemmBench b =
      bench_gemm(gemm_bench_shapes({"5x7x9", "5x7x9:nt", "5x7x9:tn", "5x7x9:tt", "5x7x9x3:nt", "5x7x9x3:tn"}), o);
  for (size_t i = 1; i < b.contenders.size(); ++i) {
    if (!b.contenders[i].missing.empty()) continue;
    for (const GemmBenchRow& r : b.rows)
      EXPECT_TRUE(r.seconds[i].median > 0 || !r.declined[i].empty()) << b.contenders[i].name;
  }
  if (!b.contenders[1].missing.empty() && !b.contenders[2].missing.empty()) GTEST_SKIP() << "no peer is installed";
  EXPECT_GT(b.geometric_mean, 0);
}

}  // namespace
}  // namespace lathe
