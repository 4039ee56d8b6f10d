// Tokens that fill a sample up change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/philox.h"
#include "nn/step/step.h"
#include "passes/pass.h"
#include "run/run_graph.h"

namespace lathe {
namespace {

constexpr int64_t kFilling = 7;

// Logits of one sample, with weights that depend on their names alone.
std::vector<double> logits_of(const ModelConfig& model, const std::vector<double>& tokens, const char* device) {
  StepConfig c;
  c.model = model;
  const StepSet s = predict_step(c, {DType::i32, {static_cast<int64_t>(tokens.size())}}, 1);
  const Backend& backend = find_backend(device);
  const Graph g = run_pipeline(s.graphs[0], {backend.target({})});
  std::vector<HostTensor> in;
  for (const Input& i : g.inputs) {
    HostTensor value{g.type(i.value), tokens};
    if (i.name != "x") {
      const CounterRng random(std::hash<std::string>{}(i.name), 0, 0, 0);
      value.data.resize(static_cast<size_t>(value.type.numel()));
      for (size_t j = 0; j < value.data.size(); ++j) value.data[j] = random.uniform(static_cast<uint32_t>(j)) - 0.5;
    }
    in.push_back(std::move(value));
  }
  return run_graph(backend, {.threads = 1}, g, in)[0].data;
}

double largest_difference(const std::vector<double>& a, const std::vector<double>& b) {
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

TEST(Bert, DoesNotSeeTheFillingOfShortSamples) {
  ModelConfig c("bert", {{"layers", 2}, {"heads", 2}, {"width", 8}, {"sequence", 9}, {"tokens", true}, {"vocab", 8}},
                {.classes = 3});
  const std::vector<double> words{1, 4, 2, 6, 3};
  std::vector<double> filled = words;
  filled.resize(9, kFilling);
  for (const char* device : {"ref", "cpu"})
    for (const char* pool : {"token", "mean"}) {
      SCOPED_TRACE(std::string(device) + " " + pool);
      c.params.set("pool", pool).set("padding", -1);
      const std::vector<double> plain = logits_of(c, words, device);
      EXPECT_GT(largest_difference(logits_of(c, filled, device), plain), 1e-3);
      c.params.set("padding", kFilling);
      EXPECT_LT(largest_difference(logits_of(c, filled, device), plain), 1e-5);
      EXPECT_LT(largest_difference(logits_of(c, words, device), plain), 1e-5);
      // A sample of nothing but filling has some answer.
      for (const double v : logits_of(c, std::vector<double>(9, kFilling), device)) EXPECT_TRUE(std::isfinite(v));
    }
}

}  // namespace
}  // namespace lathe
