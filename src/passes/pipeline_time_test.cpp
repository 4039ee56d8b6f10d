// How long the pipeline takes for a deep graph.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>

#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "passes/pass.h"

namespace lathe {
namespace {

// About 20,000 nodes after autodiff: layers with bias, activation, skip and a momentum update gated by one flag.
Graph deep_graph(int layers) {
  Builder b("deep");
  const TensorType act{DType::f32, {8, 16}};
  Value x = b.input(act, InputKind::batch, "x");
  const Value lr = b.input({DType::f32, {}}, InputKind::step, "lr");
  Values params;
  for (int i = 0; i < layers; ++i) {
    Origin origin(b, "layer" + std::to_string(i));
    const std::string name = "l" + std::to_string(i);
    const Value w = b.input({DType::f32, {16, 16}}, InputKind::param, name + ".w");
    const Value bias = b.input({DType::f32, {16}}, InputKind::param, name + ".b");
    params.insert(params.end(), {w, bias});
    const Value h = relu(matmul(x, w) + bias);
    x = i % 2 ? x + h : h;
  }
  const Value loss = sum_all(square(x)) * 0.5;
  const Values g = grad(loss, params);
  Value ok = is_finite(loss);
  for (const Value& v : g) ok = logical_and(ok, is_finite(sum_all(square(v))));
  for (size_t i = 0; i < g.size(); ++i) {
    const Value m = b.input(params[i].type(), InputKind::optimizer, "m" + std::to_string(i));
    const Value now = m * 0.9 + g[i];
    b.update(m, select(ok, now, m));
    b.update(params[i], select(ok, params[i] - lr * now, params[i]));
  }
  b.output(loss, OutputKind::metric, "loss");
  return b.finish();
}

TEST(Pipeline, TwentyThousandNodesInASecond) {
  const Graph g = deep_graph(500);
  std::vector<PassReport> reports;
  // Processor time: the machine may be busy with other things.
  const auto seconds_since = [](std::clock_t start) {
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  PipelineOptions unverified;
  unverified.verify = false;
  std::clock_t start = std::clock();
  run_pipeline(g, {}, unverified, &reports);
  const double seconds = seconds_since(start);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // which make everything slower
  EXPECT_LT(seconds, 1.0);
#endif
  EXPECT_GE(std::ranges::find(reports, "autodiff", &PassReport::name)->nodes, 20000u);
  start = std::clock();
  run_pipeline(g, {});
  for (const PassReport& r : reports)
    std::printf("  %-14s%8.1f ms %8zu nodes\n", r.name.c_str(), r.seconds * 1e3, r.nodes);
  std::printf("  all of them   %8.1f ms, verified %.1f ms (processor time)\n", seconds * 1e3,
              seconds_since(start) * 1e3);
}

}  // namespace
}  // namespace lathe
