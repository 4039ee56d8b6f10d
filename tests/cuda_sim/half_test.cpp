// Products and convolutions in f16 and bf16: the libraries compute in f32 and round what they store.
#include <gtest/gtest.h>

#include "backend/cuda/cuda_backend.h"
#include "ops/broadcast.h"
#include "ops/conv2d.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "passes/pass.h"
#include "plan/plan.h"
#include "run/run_graph.h"
#include "sim.h"

namespace lathe {
namespace {

struct HalfCase {
  const char* name;
  const char* kernel;  // of the last launch
  // Inputs: x [24, 6], w [6, 8], bias [8], z [24, 8], image [2, 7, 6, 4], filter [5, 3, 3, 4], dy [2, 7, 6, 5].
  Values (*build)(const Values& x);
};

Conv2dParams padded_by_one() {
  Conv2dParams p;
  p.pad_top = p.pad_left = p.pad_bottom = p.pad_right = 1;
  return p;
}

const HalfCase kHalfCases[] = {
    {"product", "cublaslt", [](const Values& x) -> Values { return {matmul(x[0], x[1])}; }},
    {"bias_and_gelu", "cublaslt_chain",
     [](const Values& x) -> Values {
       const Value product = matmul(x[0], x[1]), z = product + broadcast_to(x[2], product.shape());
       return {z, gelu(z)};
     }},
    {"gelu_and_bias_gradient", "cublaslt_chain",
     [](const Values& x) -> Values {
       const Value dz = matmul(x[0], x[1]) * unary("gelu_slope", x[3]);
       return {dz, reduce_sum(dz, {0})};
     }},
    {"convolution", "cudnn", [](const Values& x) -> Values { return {conv2d(x[4], x[5], padded_by_one())}; }},
    {"convolution_dx", "cudnn",
     [](const Values& x) -> Values { return {conv2d_dx(x[6], x[5], padded_by_one(), 7, 6)}; }},
    {"convolution_dw", "cudnn",
     [](const Values& x) -> Values { return {conv2d_dw(x[4], x[6], padded_by_one(), 3, 3)}; }},
};

TEST(CudaSimHalf, LibrariesComputeInF32AndRound) {
  setenv("LATHE_CACHE_DIR", LATHE_SIM_CACHE, 0);
  const cuda::Api api = sim::simulator_api();
  sim::take_reports();
  const CudaBackend backend(&api);
  const Target target = backend.target({});
  for (const DType type : {DType::f16, DType::bf16})
    for (const HalfCase& c : kHalfCases) {
      Builder b("half");
      Values x;
      for (const Shape& s :
           {Shape{24, 6}, Shape{6, 8}, Shape{8}, Shape{24, 8}, Shape{2, 7, 6, 4}, Shape{5, 3, 3, 4}, Shape{2, 7, 6, 5}})
        x.push_back(b.input({type, s}, InputKind::batch, "x" + std::to_string(x.size())));
      for (const Value& y : c.build(x)) b.output(y, OutputKind::result, "y" + std::to_string(y.id()));
      const Graph g = b.finish();
      std::vector<HostTensor> inputs;
      for (const Input& i : g.inputs) {
        HostTensor t{g.type(i.value), std::vector<double>(static_cast<size_t>(g.type(i.value).numel()))};
        for (size_t k = 0; k < t.data.size(); ++k)
          t.data[k] = round_to(type, static_cast<double>((k * 7 + inputs.size()) % 11) / 9 - 0.5);
        inputs.push_back(std::move(t));
      }
      const Graph fused = run_pipeline(g, {target});
      EXPECT_EQ(plan({fused}, target, backend.kernels()).programs[0].launches.back().candidate.name, c.kernel)
          << c.name;
      const auto expected = interpret(g, inputs, Precision::rounded), actual = run_graph(backend, {}, fused, inputs);
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_LT(relative_error(actual[i], expected[i]), type == DType::f16 ? 1e-3 : 8e-3)
            << c.name << " in " << to_string(type) << ", result " << i;
    }
  EXPECT_EQ(sim::take_reports(), std::vector<std::string>());
}

}  // namespace
}  // namespace lathe
