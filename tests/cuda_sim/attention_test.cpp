// Attention in 16 bits and its gradient: one operation graph of cuDNN.
#include "ops/attention.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "plan/plan.h"
#include "run/run_graph.h"
#include "sim.h"

namespace lathe {
namespace {

cuda::Api real_attention;
int64_t tensors_made = 0;

struct HeadCase {
  DType type;
  bool causal;
  Shape shape;
};
const HeadCase kHeads[] = {{DType::f16, true, {2, 3, 10, 16}},
                           {DType::bf16, true, {1, 2, 33, 8}},
                           {DType::bf16, false, {2, 1, 5, 24}},
                           {DType::bf16, true, {1, 2, 20, 72}},
                           {DType::f16, false, {1, 1, 19, 128}}};

std::string to_text(const HeadCase& c) {
  return fmt::format("{} {} causal {}", to_string(c.type), to_string(c.shape), c.causal);
}

Graph make_graph(const HeadCase& c, bool gradient) {
  Builder b("heads");
  const TensorType t{c.type, c.shape}, rows{DType::f32, {c.shape[0], c.shape[1], c.shape[2]}};
  const auto params = make_params(AttentionParams{c.causal, 0.3});
  Values in;
  for (int i = 0; i < (gradient ? 5 : 3); ++i) in.push_back(b.input(t, InputKind::batch, "x" + std::to_string(i)));
  if (gradient) in.push_back(b.input(rows, InputKind::batch, "lse"));
  const Values out = b.add(gradient ? attention_grad_op : attention_op, in, params);
  for (size_t i = 0; i < out.size(); ++i) b.output(out[i], OutputKind::result, "y" + std::to_string(i));
  return b.finish();
}

// The largest relative error of a result.
double error_of(const HeadCase& c, bool gradient, const cuda::Api& api) {
  const Graph g = make_graph(c, gradient);
  std::vector<HostTensor> inputs;
  for (const Input& i : g.inputs) {
    const bool rows = g.type(i.value).dtype == DType::f32;
    HostTensor t{g.type(i.value), std::vector<double>(static_cast<size_t>(g.type(i.value).numel()))};
    for (size_t k = 0; k < t.data.size(); ++k)
      t.data[k] =
          round_to(t.type.dtype, static_cast<double>((k * 7 + inputs.size() * 5) % 23) / 16 - 0.7 + (rows ? 3 : 0));
    inputs.push_back(std::move(t));
  }
  const CudaBackend backend(&api);
  const auto expected = interpret(g, inputs, Precision::rounded), actual = run_graph(backend, {}, g, inputs);
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) error = std::max(error, relative_error(actual[i], expected[i]));
  return error;
}

double allowed(DType t) { return t == DType::f16 ? 1e-3 : 8e-3; }

class CudaSimAttention : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
    real_attention = sim::simulator_api();
    sim::take_reports();
  }
};

TEST_F(CudaSimAttention, OneGraphOfOperations) {
  for (const HeadCase& c : kHeads)
    for (const bool gradient : {false, true}) {
      const int64_t before = sim::counters().operation_graphs, kernels = sim::counters().kernels;
      EXPECT_LT(error_of(c, gradient, real_attention), allowed(c.type)) << to_text(c) << (gradient ? " gradient" : "");
      EXPECT_EQ(sim::counters().operation_graphs - before, 1) << to_text(c);
      EXPECT_EQ(sim::counters().kernels, kernels);
    }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

int launches_of(bool gradient) { return gradient ? 2 : 1; }

// Heads of every width that cuDNN takes, and tensors of 16 bits as they are: nothing is widened.
TEST_F(CudaSimAttention, OwnTextWhereThereIsNoEngine) {
  setenv("LATHE_CUDA_SIM_NO_ENGINE", "1", 1);
  sim::set_order_check(true);
  for (const HeadCase& c : kHeads)
    for (const bool gradient : {false, true}) {
      const sim::Counters before = sim::counters();
      EXPECT_LT(error_of(c, gradient, real_attention), allowed(c.type)) << to_text(c) << (gradient ? " gradient" : "");
      EXPECT_EQ(sim::counters().operation_graphs, before.operation_graphs) << to_text(c);
      EXPECT_EQ(sim::counters().kernels - before.kernels, launches_of(gradient)) << to_text(c);
    }
  sim::set_order_check(false);
  unsetenv("LATHE_CUDA_SIM_NO_ENGINE");
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

// The gradient's engine wants room for the square of the length. A small card does not give it: the gradient alone is
// computed by the own text.
TEST_F(CudaSimAttention, OwnTextWhereTheEngineWantsTooMuchWorkspace) {
  const HeadCase many{DType::bf16, true, {65, 4, 65, 8}};
  constexpr int64_t kSmall = int64_t{64} << 20, kUsual = int64_t{2} << 30;
  for (const int64_t memory : {kUsual, kSmall})
    for (const bool gradient : {false, true}) {
      sim::set_device_memory(memory);
      const sim::Counters before = sim::counters();
      EXPECT_LT(error_of(many, gradient, real_attention), allowed(many.type))
          << memory << (gradient ? " gradient" : "");
      const bool own = gradient && memory == kSmall;
      EXPECT_EQ(sim::counters().operation_graphs - before.operation_graphs, own ? 0 : 1) << memory << gradient;
      EXPECT_EQ(sim::counters().kernels - before.kernels, own ? launches_of(gradient) : 0) << memory << gradient;
    }
  sim::set_device_memory(kUsual);
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

// What cuDNN takes, the own text takes: nothing can be left without a kernel when it is bound. What neither takes is
// expanded by the plan.
TEST_F(CudaSimAttention, WhatCudnnTakesTheOwnTextTakesToo) {
  const CudaBackend backend(&real_attention);
  const Target target = backend.target({});
  for (int64_t width = 1; width <= 160; ++width)
    for (const bool gradient : {false, true}) {
      const Graph g = make_graph({DType::f16, true, {1, 1, 4, width}}, gradient);
      const Node& n = g.nodes[0];
      const Site site{n, g.types_of(n.inputs), g.types_of(n.outputs), target};
      const auto rows = backend.kernels().candidates(n.op->name());
      ASSERT_EQ(rows[0].candidate.name, "cudnn_attention");
      ASSERT_EQ(rows[1].candidate.name, rows[0].candidate.otherwise);
      if (rows[0].candidate.accepts(site).empty()) {
        EXPECT_EQ(rows[1].candidate.accepts(site), "") << width;
        EXPECT_EQ(rows[1].candidate.workspace(site), 0) << width;
      }
      const Program p = plan({g}, target, backend.kernels()).programs[0];
      EXPECT_EQ(p.launches.size() == 1, width <= 128) << width;
    }
}

// Planted: the mask compares the other way round; one tensor of the graph is described with the strides of another.
TEST_F(CudaSimAttention, FaultsAreSeen) {
  cuda::Api api = real_attention;
  api.cudnnBackendSetAttribute = [](cuda::DnnDescriptor d, int name, int type, int64_t count, const void* values) {
    const int64_t other = 3;
    return real_attention.cudnnBackendSetAttribute(d, name, type, count,
                                                   name == cuda::kPointwiseAxis ? &other : values);
  };
  for (const bool gradient : {false, true}) EXPECT_FALSE(error_of(kHeads[0], gradient, api) < 0.05);
  api.cudnnBackendSetAttribute = [](cuda::DnnDescriptor d, int name, int type, int64_t count, const void* values) {
    const auto* s = static_cast<const int64_t*>(values);
    if (name != cuda::kTensorStrides || ++tensors_made != 2)
      return real_attention.cudnnBackendSetAttribute(d, name, type, count, values);
    const int64_t swapped[4] = {s[0], s[1], s[3], s[2]};
    return real_attention.cudnnBackendSetAttribute(d, name, type, count, swapped);
  };
  tensors_made = 0;
  double error = 1;
  try {
    error = error_of(kHeads[0], false, api);
  } catch (const DeviceError&) {
  }
  EXPECT_FALSE(error < 0.05);
  sim::take_reports();
}

TEST_F(CudaSimAttention, WhatCudnnDoesNotTakeIsDeclinedWithAReason) {
  const CudaBackend backend(&real_attention);
  const Target target = backend.target({});
  const auto reason = [&](const HeadCase& c) {
    const Graph g = make_graph(c, false);
    const Node& n = g.nodes[0];
    return backend.kernels().candidates("attention")[0].candidate.accepts(
        Site{n, g.types_of(n.inputs), g.types_of(n.outputs), target});
  };
  EXPECT_EQ(reason(kHeads[0]), "");
  EXPECT_NE(reason({DType::f32, true, {1, 1, 4, 8}}).find("not f32"), std::string::npos);
  EXPECT_NE(reason({DType::f16, true, {1, 1, 4, 12}}).find("multiples of 8"), std::string::npos);
  EXPECT_NE(reason({DType::bf16, true, {1, 1, 4, 136}}).find("up to 128"), std::string::npos);
}

}  // namespace
}  // namespace lathe
