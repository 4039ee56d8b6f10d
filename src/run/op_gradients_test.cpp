// Every op with its gradient, through all passes, on the cpu: what fusion and the kernels of fused loops make of ops
// that the conformance suite runs one node at a time.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "backend/backend.h"
#include "base/philox.h"
#include "ir/builder.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/sample.h"
#include "passes/autodiff.h"
#include "passes/pass.h"
#include "run/run_graph.h"

namespace lathe {
namespace {

// What is left of a cancellation has no relative precision.
constexpr double kSmallestSize = 1e-2;
constexpr double kFusedTolerance = 2e-4;  // f32 against f64, of sums and differences of several nodes

double error_beyond_cancellation(const HostTensor& actual, const HostTensor& expected) {
  double size = 1e-6;  // the smallest one that relative_error divides by
  for (double v : expected.data) size = std::max(size, std::abs(v));
  return relative_error(actual, expected) * std::min(1.0, size / kSmallestSize);
}

struct WithGradient {
  Graph graph;
  std::vector<HostTensor> inputs;
};

// y, and the derivatives of sum <c, y> by the float inputs.
WithGradient with_gradient(const OpDef& op, const Sample& s, uint64_t seed) {
  WithGradient out{{}, sample_inputs(s, seed)};
  Builder b("op");
  Values x, by;
  for (const SampleInput& in : s.inputs) {
    x.push_back(b.input(in.type, InputKind::batch, "x" + std::to_string(x.size())));
    if (is_float(in.type.dtype)) by.push_back(x.back());
  }
  const Values y = b.add(op, x, s.params);
  Value loss;
  for (size_t i = 0; i < y.size(); ++i) {
    b.output(y[i], OutputKind::result, "y" + std::to_string(i));
    if (!is_float(y[i].dtype()) || !op.is_differentiable()) continue;
    const Value c = b.input(y[i].type(), InputKind::batch, "c" + std::to_string(i));
    const CounterRng rng(seed, static_cast<uint32_t>(i), 0, 0);
    HostTensor weights{y[i].type(), {}};
    for (int64_t k = 0; k < weights.type.numel(); ++k)
      weights.data.push_back(static_cast<double>(rng.uniform(static_cast<uint64_t>(k))) - 0.5);
    out.inputs.push_back(std::move(weights));
    const Value term = sum_all(c * y[i]);
    loss = loss ? loss + term : term;
  }
  if (loss && !by.empty())
    for (const Value& d : grad(loss, by)) b.output(d, OutputKind::result, "d" + std::to_string(d.id()));
  out.graph = b.finish();
  return out;
}

TEST(OpGradients, AgreeAfterAllPassesOnTheCpu) {
  const Backend& cpu = find_backend("cpu");
  int runs = 0;
  for (const OpDef* op : registry().all()) {
    uint64_t seed = 1;
    for (const Sample& s : op->samples()) {
      int64_t elements = 0;
      for (const SampleInput& in : s.inputs) elements += in.type.numel();
      if (elements > 2000) continue;
      SCOPED_TRACE(fmt::format("{}/{}", op->name(), s.label));
      const WithGradient g = with_gradient(*op, s, ++seed);
      // The conformance suite has its own tolerances for 16 bits.
      if (std::ranges::any_of(g.graph.types, [](const TensorType& t) { return is_16bit(t.dtype); })) continue;
      const auto expected = interpret(autodiff(g.graph, PassContext{}), g.inputs, Precision::exact);
      std::vector<HostTensor> actual;
      ASSERT_NO_THROW(actual = run_graph(cpu, {}, run_pipeline(g.graph, {cpu.target({})}), g.inputs));
      for (size_t i = 0; i < expected.size(); ++i)
        EXPECT_LE(error_beyond_cancellation(actual[i], expected[i]), kFusedTolerance) << g.graph.outputs[i].name;
      ++runs;
    }
  }
  EXPECT_GT(runs, 300);
}

}  // namespace
}  // namespace lathe
