// The check of orders sees what it is there for. (It is on in conformance_test.cpp, grid_test.cpp, attention_test.cpp.)
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_device.h"
#include "base/error.h"
#include "sim.h"

namespace lathe {
namespace {

class CudaSimOrder : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
    sim::take_reports();
    sim::set_order_check(true);
  }
  void TearDown() override { sim::set_order_check(false); }
};

// Planted: no barrier after a write that others read, none before the next one overwrites, two blocks that write to one
// place. Beside each the text that is right.
TEST_F(CudaSimOrder, AMissingBarrierIsSeen) {
  const cuda::Api api = sim::simulator_api();
  const CudaBackend backend(&api);
  const auto run = [&](const std::string& name, const std::string& body, int64_t groups) -> std::string {
    const auto device = backend.open({});
    device->allocate(std::vector<int64_t>{1024});
    const std::vector<std::byte> zeros(1024);
    device->stream(Lane::compute).copy_in({0, 0, 1024}, zeros.data());
    KernelCall call;
    call.name = name;
    call.source =
        fmt::format("KERNEL void {}(GLOBAL int* x, const long at) {{\nLOCAL int tile[4];\n{}\n}}\n", name, body);
    call.args = {out_arg(0, DType::i32)};
    call.group_size = 4;
    call.groups = {groups, 1, 1};
    const KernelArgs args{{Buffer{0, 0, 1024}}, {}, {}};
    try {
      as_cuda(*device).bind(name, {call}, args)->run(device->stream(Lane::compute));
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  };
  const auto load = [](const char* between) {
    return fmt::format("tile[LOCAL_ID] = LOCAL_ID + 1;\n{}x[LOCAL_ID] = tile[3 - LOCAL_ID];\n", between);
  };
  const auto loop = [](const char* before_next) {
    return fmt::format(
        "int sum = 0;\nfor (int i = 0; i < 3; ++i) {{\ntile[LOCAL_ID] = 4 * i + LOCAL_ID;\nBARRIER();\n"
        "sum += tile[3 - LOCAL_ID];\n{}}}\nx[LOCAL_ID] = sum;\n",
        before_next);
  };
  const char *const kMissing = "depends on the order of work-items", *const kBarrier = "BARRIER();\n";
  EXPECT_EQ(run("order_load", load(kBarrier), 1), "no error");
  EXPECT_NE(run("order_load_planted", load(""), 1).find(kMissing), std::string::npos);
  EXPECT_EQ(run("order_loop", loop(kBarrier), 1), "no error");
  EXPECT_NE(run("order_loop_planted", loop(""), 1).find(kMissing), std::string::npos);
  EXPECT_EQ(run("order_blocks", "x[4 * GROUP_ID(0) + LOCAL_ID] = GROUP_ID(0);\n", 2), "no error");
  EXPECT_NE(run("order_blocks_planted", "x[LOCAL_ID] = GROUP_ID(0);\n", 2).find(kMissing), std::string::npos);
  EXPECT_EQ(sim::take_reports().size(), 3u);
  // Without the check it passes.
  sim::set_order_check(false);
  EXPECT_EQ(run("order_load_planted", load(""), 1), "no error");
}

}  // namespace
}  // namespace lathe
