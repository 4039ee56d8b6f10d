// Every text that has a barrier, at tiny shapes and with small tiles. tests/kernels/oclgrind.py runs these under
// oclgrind, which sees races and accesses outside of buffers that real devices hide.
#include <gtest/gtest.h>

#include "backend/opencl/batch_test.h"
#include "ops/attention.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/sample.h"

namespace lathe {
namespace {

class OpenClBarriers : public ::testing::Test {
 protected:
  void SetUp() override { open(16); }

  void open(int attention_rows) {
    OpenClDeviceOptions options;
    options.tiles = ProductTiles{
        .style = LaunchStyle::wide, .tile_rows = 16, .tile_cols = 16, .item_rows = 4, .item_cols = 4, .wide_depth = 16};
    options.tiles->attention_rows = attention_rows;
    std::string reason;
    device_ = open_test_device(options, &reason);
    if (!device_) GTEST_SKIP() << reason;
    batch_ = std::make_unique<DeviceBatch>(*device_);
  }

  template <class F>
  void add(const char* label, const std::vector<Shape>& shapes, F&& build) {
    Builder b("tiny");
    Values x;
    Sample s{label, {}, nullptr};
    for (size_t i = 0; i < shapes.size(); ++i) {
      const TensorType t{DType::f32, shapes[i]};
      x.push_back(b.input(t, InputKind::batch, fmt::format("x{}", i)));
      s.inputs.push_back({t, -1, 1});
    }
    b.output(build(x), OutputKind::result, "y");
    EXPECT_EQ(batch_->add(label, b.finish(), sample_inputs(s, 5)), "");
  }

  std::unique_ptr<OpenClDevice> device_;
  std::unique_ptr<DeviceBatch> batch_;
};

TEST_F(OpenClBarriers, Products) {
  add("matmul", {{19, 35}, {35, 18}}, [](const Values& x) { return matmul(x[0], x[1]); });
  add("transposed matmul", {{20, 3}, {5, 20}}, [](const Values& x) { return matmul(x[0], x[1], true, true); });
  add("split matmul", {{2, 2100}, {2100, 3}}, [](const Values& x) { return matmul(x[0], x[1]); });
  Conv2dParams p;
  p.pad_top = p.pad_left = p.pad_bottom = p.pad_right = 1;
  Conv2dParams strided = p;
  strided.stride_h = strided.stride_w = 2;
  add("conv", {{1, 5, 4, 3}, {5, 3, 3, 3}}, [&](const Values& x) { return conv2d(x[0], x[1], p); });
  add("conv_dx", {{1, 5, 4, 3}, {3, 3, 3, 2}}, [&](const Values& x) { return conv2d_dx(x[0], x[1], p, 5, 4); });
  add("strided conv_dx", {{1, 3, 2, 3}, {3, 3, 3, 2}},
      [&](const Values& x) { return conv2d_dx(x[0], x[1], strided, 5, 4); });
  add("conv_dw", {{1, 5, 4, 2}, {1, 5, 4, 3}}, [&](const Values& x) { return conv2d_dw(x[0], x[1], p, 3, 3); });
  add("epilogue", {{9, 10}, {10, 11}, {11}}, [](const Values& v) {
    Builder body("body");
    const Value x = body.input(v[0].type(), InputKind::batch, "x"), w = body.input(v[1].type(), InputKind::batch, "w"),
                bias = body.input(v[2].type(), InputKind::batch, "bias");
    body.output(relu(matmul(x, w) + bias), OutputKind::result, "y");
    const FusedParams params{"matmul", std::make_shared<const Graph>(body.finish())};
    return v[0].builder().add1(fused_op, v, params);
  });
  batch_->run(1e-5);
}

TEST_F(OpenClBarriers, Attention) {
  for (const OpDef* op : {&attention_op, &attention_grad_op})
    for (const Sample& s : op->samples()) {
      if (s.label != "causal" && s.label != "small" && s.label != "wider") continue;
      EXPECT_EQ(batch_->add(fmt::format("{} {}", op->name(), s.label), sample_graph(*op, s), sample_inputs(s, 3)), "");
    }
  EXPECT_EQ(batch_->size(), 6u);
  batch_->run(1e-5);
}

TEST_F(OpenClBarriers, AttentionWithMoreRows) {
  batch_.reset();
  open(32);
  const SampleInput in{{DType::f32, {1, 1, 20, 3}}}, lse{{DType::f32, {1, 1, 20}}, 2, 4};
  const ParamsPtr causal = make_params(AttentionParams{true, 0.5});
  const Sample forward{"32 rows", {in, in, in}, causal}, back{"32 rows", {in, in, in, in, in, lse}, causal};
  EXPECT_EQ(batch_->add("attention", sample_graph(attention_op, forward), sample_inputs(forward, 3)), "");
  EXPECT_EQ(batch_->add("attention_grad", sample_graph(attention_grad_op, back), sample_inputs(back, 3)), "");
  batch_->run(1e-5);
}

TEST_F(OpenClBarriers, Reductions) {
  add("sum of rows", {{3, 300}}, [](const Values& x) { return reduce_sum(x[0], {1}); });
  add("maximum of outer and inner", {{2, 3, 5}}, [](const Values& x) { return reduce_max(x[0], {0, 2}); });
  batch_->run(1e-5);
}

}  // namespace
}  // namespace lathe
