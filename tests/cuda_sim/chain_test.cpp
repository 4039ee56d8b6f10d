// Products and convolutions with elementwise work behind them: what the library does itself, and what follows as a
// loop.
#include <gtest/gtest.h>

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "ops/broadcast.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
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
  // Inputs: x [24, 6], w [6, 8], bias [8], residual [24, 8].
  Values (*build)(Value x, Value w, Value bias, Value residual);
  int epilogue;  // that cuBLASLt gets; 0: another library
  int kernels;   // launched besides
};

Value dense(Value x, Value w) { return matmul(x, w); }
Value image(Value x, Value w) { return conv2d(reshape(x, {2, 3, 4, 6}), reshape(w, {8, 1, 1, 6}), Conv2dParams{}); }
Value spread(Value b, const Value& like) { return broadcast_to(b, like.type().shape); }

const Case kCases[] = {
    {"relu",
     [](Value x, Value w, Value b, Value) -> Values {
       const Value z = dense(x, w);
       return {relu(z + spread(b, z))};
     },
     cuda::kEpilogueReluBias, 0},
    {"gelu",
     [](Value x, Value w, Value b, Value) -> Values {
       const Value z = dense(x, w);
       return {gelu(z + spread(b, z))};
     },
     cuda::kEpilogueGeluBias, 0},
    {"residual",
     [](Value x, Value w, Value b, Value r) -> Values {
       const Value z = dense(x, w);
       return {relu(z + spread(b, z) + r)};
     },
     cuda::kEpilogueReluBias, 0},
    {"tanh",
     [](Value x, Value w, Value b, Value) -> Values {
       const Value z = dense(x, w);
       return {tanh(z + spread(b, z))};
     },
     cuda::kEpilogueBias, 1},
    {"image",
     [](Value x, Value w, Value b, Value) -> Values {
       const Value z = image(x, w);
       return {relu(z + spread(b, z))};
     },
     0, 1},
    {"gelu_kept",
     [](Value x, Value w, Value b, Value) -> Values {
       const Value product = dense(x, w), z = product + spread(b, product);
       return {z, gelu(z)};
     },
     cuda::kEpilogueGeluAuxBias, 0},
    {"gelu_kept_without_bias",
     [](Value x, Value w, Value, Value r) -> Values {
       const Value z = r + dense(x, w);
       return {gelu(z), z};
     },
     cuda::kEpilogueGeluAux, 0},
    {"gelu_gradient", [](Value x, Value w, Value, Value r) -> Values { return {dense(x, w) * unary("gelu_slope", r)}; },
     cuda::kEpilogueDgelu, 0},
    {"gelu_and_bias_gradient",
     [](Value x, Value w, Value, Value r) -> Values {
       const Value dz = unary("gelu_slope", r) * dense(x, w);
       return {reduce_sum(dz, {0}), dz};
     },
     cuda::kEpilogueDgeluBgrad, 0},
    // The gradient that both read must not come from a loop, which would sum it itself.
    {"bias_gradient_of_a",
     [](Value x, Value w, Value, Value) -> Values {
       const Value dy = dense(x, w);
       return {matmul(dy, x, true), reduce_sum(dy, {0})};
     },
     cuda::kEpilogueBgradB, 0},
    {"bias_gradient_of_b",
     [](Value x, Value w, Value, Value) -> Values {
       const Value dy = dense(x, w);
       return {reduce_sum(dy, {0}), matmul(x, dy, true)};
     },
     cuda::kEpilogueBgradA, 0},
};

// The largest relative error of the case on the simulated card, by the backend with this table.
double error_of(const Case& c, const cuda::Api& api, std::string* kernel) {
  Builder b("chain");
  const auto in = [&](const char* name, Shape s) {
    return b.input({DType::f32, std::move(s)}, InputKind::batch, name);
  };
  const Value x = in("x", {24, 6}), w = in("w", {6, 8}), bias = in("bias", {8}), residual = in("residual", {24, 8});
  for (const Value& y : c.build(x, w, bias, residual)) b.output(y, OutputKind::result, "y" + std::to_string(y.id()));
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
  *kernel = plan({fused}, target, backend.kernels()).programs[0].launches.back().candidate.name;
  const auto expected = interpret(g, inputs, Precision::rounded), actual = run_graph(backend, {}, fused, inputs);
  double error = 0;
  for (size_t i = 0; i < expected.size(); ++i) error = std::max(error, relative_error(actual[i], expected[i]));
  return error;
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

// Whether the library has an algorithm shows on the card only: without one, a loop does the rest.
TEST_F(CudaSimChain, WithoutTheEpilogueALoopDoesIt) {
  cuda::Api api = real;
  api.cublasLtMatmulDescSetAttribute = [](cuda::LtMatmulDesc d, int attribute, const void* value, size_t bytes) {
    if (attribute == cuda::kDescEpilogue) last_epilogue = *static_cast<const int*>(value);
    return real.cublasLtMatmulDescSetAttribute(d, attribute, value, bytes);
  };
  api.cublasLtMatmulAlgoGetHeuristic = [](cuda::LtHandle h, cuda::LtMatmulDesc desc, cuda::LtLayout a, cuda::LtLayout b,
                                          cuda::LtLayout c, cuda::LtLayout d, cuda::LtPreference p, int wanted,
                                          cuda::LtHeuristicResult* results, int* found) {
    if (last_epilogue != cuda::kEpilogueDefault) return int{cuda::kLtNotSupported};
    return real.cublasLtMatmulAlgoGetHeuristic(h, desc, a, b, c, d, p, wanted, results, found);
  };
  for (const Case& c : kCases) {
    if (c.epilogue == 0) continue;
    std::string kernel;
    EXPECT_LT(error_of(c, api, &kernel), 1e-6) << c.name;
    EXPECT_EQ(last_epilogue, cuda::kEpilogueDefault) << c.name;
  }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

// A planted fault, as in fault_test.cpp.
TEST_F(CudaSimChain, WrongEpilogueIsSeen) {
  cuda::Api api = real;
  api.cublasLtMatmulDescSetAttribute = [](cuda::LtMatmulDesc d, int attribute, const void* value, size_t bytes) {
    const int right = *static_cast<const int*>(value);
    const int other = right == cuda::kEpilogueDgelu        ? cuda::kEpilogueGeluAux
                      : right == cuda::kEpilogueDgeluBgrad ? cuda::kEpilogueDgelu
                      : right == cuda::kEpilogueBgradA     ? cuda::kEpilogueBgradB
                      : right == cuda::kEpilogueBgradB     ? cuda::kEpilogueBgradA
                      : right == cuda::kEpilogueDefault    ? cuda::kEpilogueDefault
                                                           : cuda::kEpilogueBias;
    return real.cublasLtMatmulDescSetAttribute(d, attribute, attribute == cuda::kDescEpilogue ? &other : value, bytes);
  };
  std::string kernel;
  for (const Case& c : kCases) {
    if (c.epilogue == 0 || c.epilogue == cuda::kEpilogueBias) continue;
    double error = 1;
    try {
      error = error_of(c, api, &kernel);
    } catch (const DeviceError&) {  // a sum longer than its memory
    }
    EXPECT_FALSE(error < 0.01) << c.name;  // NaN, where a result was never written
  }
  sim::take_reports();
}

// A planted fault: the library reads and writes what gelu was applied to with the wrong leading dimension.
TEST_F(CudaSimChain, WrongLeadingDimensionOfTheGeluInputIsSeen) {
  cuda::Api api = real;
  api.cublasLtMatmulDescSetAttribute = [](cuda::LtMatmulDesc d, int attribute, const void* value, size_t bytes) {
    const int64_t wrong = 24;
    return real.cublasLtMatmulDescSetAttribute(d, attribute, attribute == cuda::kDescAuxLd ? &wrong : value, bytes);
  };
  std::string kernel;
  for (const Case& c : kCases)
    if (c.epilogue & 128) {
      double error = 1;
      try {
        error = error_of(c, api, &kernel);
      } catch (const DeviceError&) {  // past the allocation
      }
      EXPECT_FALSE(error < 0.01) << c.name;
    }
  sim::take_reports();
}

}  // namespace
}  // namespace lathe
