#include <gtest/gtest.h>

#include <cmath>

#include "backend/backend.h"
#include "ir/interpret.h"
#include "nn/step.h"
#include "passes/pass.h"

namespace lathe {
namespace {

// The loss of one step from logits 1 and 2.
double loss_of_step(StepConfig c, const std::vector<double>& target) {
  c.model = {.family = "mlp", .classes = 2, .hidden = {}};
  const Step s = train_step(c, {DType::f32, {1, 1, 2}}, 1);
  std::vector<HostTensor> in;
  for (const Input& i : s.graph.inputs) {
    const TensorType t = s.graph.type(i.value);
    HostTensor value{t, std::vector<double>(static_cast<size_t>(t.numel()))};
    if (i.name == "x") value.data = {1, 2};
    if (i.name == "y") value.data = target;
    if (i.name == "fc1.weight") value.data = {1, 0, 0, 1};
    if (i.name == "loss_scale") value.data = {1};
    in.push_back(std::move(value));
  }
  const Graph g = run_pipeline(s.graph, {find_backend("ref").target({})});
  const auto results = interpret(g, in, Precision::exact);
  for (size_t i = 0; i < g.outputs.size(); ++i)
    if (g.outputs[i].name == "loss") return results[i].data[0];
  ADD_FAILURE() << "no loss";
  return 0;
}

TEST(Steps, TrainWithTheLossThatIsAskedFor) {
  const double p = 1 / (1 + std::exp(1.0)), entropy = -std::log(p);
  StepConfig c;
  EXPECT_NEAR(loss_of_step(c, {0}), entropy, 1e-9);
  c.loss = Loss::focal;
  EXPECT_NEAR(loss_of_step(c, {0}), std::pow(1 - p, 2) * entropy, 1e-9);
  c.focal_gamma = 0.5;
  EXPECT_NEAR(loss_of_step(c, {0}), std::sqrt(1 - p) * entropy, 1e-9);
  c.task = Task::regress;
  c.loss = Loss::plain;
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 0.25 + 9, 1e-9);
  c.loss = Loss::l1;
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 0.5 + 3, 1e-9);
  c.loss = Loss::huber;
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 0.125 + (3 - 0.5), 1e-9);
  c.huber_delta = 2;
  EXPECT_NEAR(loss_of_step(c, {0.5, 5}), 0.125 + 2 * (3 - 1), 1e-9);
}

}  // namespace
}  // namespace lathe
