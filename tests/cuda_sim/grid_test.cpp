// Grids beyond a card's limits along y and z.
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_grid.h"
#include "base/error.h"
#include "ops/attention.h"
#include "run/conformance.h"
#include "run/run_graph.h"
#include "sim.h"

namespace lathe {
namespace {

class CudaSimGrid : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
    sim::take_reports();
  }
  void TearDown() override {
    sim::set_largest_grid(65535);
    sim::set_order_check(false);
  }
};

// A card that runs one block along y and z: every other grid is folded, and refused by the simulator where it is not.
// Without the libraries, so that products are among them.
TEST_F(CudaSimGrid, FoldedGridsComputeTheSame) {
  cuda::Api api = sim::simulator_api();
  api.cublaslt_missing = api.cudnn_missing = "left out";
  const CudaBackend backend(&api);
  sim::set_largest_grid(1);
  sim::set_order_check(true);
  for (const char* op : {"matmul", "conv2d_dx", "attention", "reduce_sum"}) {
    const ConformanceReport report = run_conformance(backend, {}, op);
    EXPECT_EQ(report.failed() + report.declined(), 0) << to_text(report);
    EXPECT_GT(report.passed(), 0) << op;
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

TEST_F(CudaSimGrid, MoreHeadsThanBlocksAlongY) {
  Builder b("heads");
  const TensorType t{DType::f32, {256, 1, 1, 2}};
  Values in;
  for (const char* name : {"q", "k", "v"}) in.push_back(b.input(t, InputKind::batch, name));
  const Values out = b.add(attention_op, in, make_params(AttentionParams{true, 1.0}));
  b.output(out[0], OutputKind::result, "y");
  const Graph g = b.finish();
  std::vector<HostTensor> inputs;
  for (size_t i = 0; i < 3; ++i) {
    HostTensor x{t, std::vector<double>(static_cast<size_t>(t.numel()))};
    for (size_t e = 0; e < x.data.size(); ++e) x.data[e] = static_cast<double>(e % 1024 + i);
    inputs.push_back(std::move(x));
  }
  const cuda::Api api = sim::simulator_api();
  const CudaBackend backend(&api);
  sim::set_largest_grid(255);
  const auto y = run_graph(backend, {}, g, inputs);
  // One position: attention gives its value back.
  EXPECT_EQ(y[0].data, inputs[2].data);
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

TEST_F(CudaSimGrid, WhatFitsIsLeftAlone) {
  KernelCall call;
  call.name = "k";
  call.source = "text";
  call.groups = {7, 65535, 65535};
  constexpr std::array<int64_t, 3> kLargest{2147483647, 65535, 65535};
  EXPECT_EQ(fold_grid(call, kLargest).source, "text");
  call.groups = {7, 65536, 2};
  const KernelCall folded = fold_grid(call, kLargest);
  EXPECT_EQ(folded.groups, (std::array<int64_t, 3>{7 * 65536 * 2, 1, 1}));
  EXPECT_NE(folded.name, call.name);
  call.groups = {65536, 65536, 1};
  EXPECT_THROW(fold_grid(call, kLargest), DeviceError);
}

}  // namespace
}  // namespace lathe
