// Products and convolutions with elementwise work behind them: what the library does itself, and what follows as a
// loop.
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "ops/broadcast.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reshape.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "run/run_graph.h"
#include "sim.h"

namespace lathe {
namespace {

cuda::Api real;
int last_epilogue = 0;

struct Case {
  const char* name;
  Value (*build)(Value x, Value w, Value bias, Value residual);
  int epilogue;  // that cuBLASLt gets; 0: another library
  int kernels;   // launched besides
};

Value dense(Value x, Value w) { return matmul(x, w); }
Value image(Value x, Value w) { return conv2d(reshape(x, {2, 3, 4, 6}), reshape(w, {6, 1, 1, 6}), Conv2dParams{}); }
Value spread(Value b, const Value& like) { return broadcast_to(b, like.type().shape); }

const Case kCases[] = {
    {"relu",
     [](Value x, Value w, Value b, Value) {
       const Value z = dense(x, w);
       return relu(z + spread(b, z));
     },
     cuda::kEpilogueReluBias, 0},
    {"gelu",
     [](Value x, Value w, Value b, Value) {
       const Value z = dense(x, w);
       return gelu(z + spread(b, z));
     },
     cuda::kEpilogueGeluBias, 0},
    {"residual",
     [](Value x, Value w, Value b, Value r) {
       const Value z = dense(x, w);
       return relu(z + spread(b, z) + r);
     },
     cuda::kEpilogueReluBias, 0},
    {"tanh",
     [](Value x, Value w, Value b, Value) {
       const Value z = dense(x, w);
       return tanh(z + spread(b, z));
     },
     cuda::kEpilogueBias, 1},
    {"image",
     [](Value x, Value w, Value b, Value) {
       const Value z = image(x, w);
       return relu(z + spread(b, z));
     },
     0, 1},
};

// The largest relative error of the case on the simulated card, by the backend with this table.
double error_of(const Case& c, const cuda::Api& api, std::string* kernel) {
  Builder b("chain");
  const auto in = [&](const char* name, Shape s) {
    return b.input({DType::f32, std::move(s)}, InputKind::batch, name);
  };
  const Value x = in("x", {24, 6}), w = in("w", {6, 6}), bias = in("bias", {6}), residual = in("residual", {24, 6});
  b.output(c.build(x, w, bias, residual), OutputKind::result, "y");
  const Graph g = b.finish();
  std::vector<HostTensor> inputs;
  for (const Input& i : g.inputs) {
    HostTensor t{g.type(i.value), std::vector<double>(static_cast<size_t>(g.type(i.value).numel()))};
    for (size_t k = 0; k < t.data.size(); ++k)
      t.data[k] = static_cast<float>(static_cast<double>((k * 7 + inputs.size()) % 11) / 8 - 0.5);
    inputs.push_back(std::move(t));
  }
  const CudaBackend backend(&api);
  const Target target = backend.target({});
  const Graph fused = run_pipeline(g, {target});
  *kernel = plan({fused}, target, backend.kernels()).programs[0].launches[0].candidate.name;
  return relative_error(run_graph(backend, {}, fused, inputs)[0], interpret(g, inputs, Precision::rounded)[0]);
}

class CudaSimChain : public ::testing::Test {
 protected:
  void SetUp() override {
    setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
    real = sim::simulator_api();
    sim::take_reports();
  }
};

TEST_F(CudaSimChain, RunsInTheLibraryWhereItCan) {
  cuda::Api api = real;
  api.cublasLtMatmulDescSetAttribute = [](cuda::LtMatmulDesc d, int attribute, const void* value, size_t bytes) {
    if (attribute == cuda::kDescEpilogue) last_epilogue = *static_cast<const int*>(value);
    return real.cublasLtMatmulDescSetAttribute(d, attribute, value, bytes);
  };
  for (const Case& c : kCases) {
    last_epilogue = 0;
    std::string kernel;
    const int64_t before = sim::counters().kernels;
    EXPECT_LT(error_of(c, api, &kernel), 1e-6) << c.name;
    EXPECT_EQ(kernel, c.epilogue ? "cublaslt_chain" : "cudnn_chain") << c.name;
    EXPECT_EQ(last_epilogue, c.epilogue) << c.name;
    EXPECT_EQ(sim::counters().kernels - before, c.kernels) << c.name;
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

// A planted fault, as in fault_test.cpp.
TEST_F(CudaSimChain, WrongEpilogueIsSeen) {
  cuda::Api api = real;
  api.cublasLtMatmulDescSetAttribute = [](cuda::LtMatmulDesc d, int attribute, const void* value, size_t bytes) {
    const int other = cuda::kEpilogueBias;
    return real.cublasLtMatmulDescSetAttribute(d, attribute, attribute == cuda::kDescEpilogue ? &other : value, bytes);
  };
  std::string kernel;
  for (size_t i = 0; i < 3; ++i) EXPECT_GT(error_of(kCases[i], api, &kernel), 0.01) << kCases[i].name;
}

}  // namespace
}  // namespace lathe
