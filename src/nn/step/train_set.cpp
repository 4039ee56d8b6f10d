#include "nn/step/train_set.h"

#include <unordered_set>

#include "ops/gather.h"
#include "ops/grad.h"
#include "ops/gradient.h"

namespace lathe {
namespace {

using IsTrained = std::function<bool(const StateSpec&)>;

// Parameters whose rows are looked up: embeddings.
std::unordered_set<ValueId> tables(const Graph& g) {
  std::unordered_set<ValueId> out;
  for (const Node& n : g.nodes)
    if (n.op == &gather_op) out.insert(n.inputs[0]);
  return out;
}

// The rows of the net and of its optimizer; the graph itself.
StepSet finish(Net& net, const IsTrained& trained, const StateTable& optimizer) {
  StepSet set;
  for (StateSpec s : net.specs()) {
    if (s.kind == InputKind::param && trained) s.gated = trained(s);
    set.state.add(std::move(s));
  }
  for (const StateSpec& s : optimizer) set.state.add(s);
  set.graphs.push_back(net.builder().finish());
  return set;
}

}  // namespace

StepSet train_set(Net& net, Value loss, const OptimizerConfig& config, const UpdateOptions& options) {
  Builder& b = net.builder();
  const std::unordered_set<ValueId> lookups = tables(b.graph());
  std::vector<StateSpec> specs;
  Values params;
  for (size_t i = 0; i < net.specs().size(); ++i) {
    const StateSpec& s = net.specs()[i];
    if (s.kind != InputKind::param || (options.trained && !options.trained(s))) continue;
    specs.push_back(s);
    params.push_back(net.values()[i]);
  }
  LATHE_USER_CHECK(!params.empty(), "graph \"{}\": expected a parameter to train, got none", b.graph().name);
  Values gradients;
  {
    const Origin origin(b, "loss", Role::loss);
    gradients = grad(loss, params);
  }
  Optimizer optimizer(b, config, specs, options.scope);
  {
    const Origin origin(b, "update", Role::update);
    for (size_t i = 0; i < params.size(); ++i) gradients[i] = gradient(gradients[i], specs[i].name);
    const Value lr = b.input({DType::f32, {}}, InputKind::step, "lr");
    for (size_t i = 0; i < params.size(); ++i)
      optimizer.update(i, params[i], gradients[i], lr, lookups.contains(params[i].id()));
    optimizer.finish();
  }
  for (const auto& [buffer, now] : net.buffer_updates()) b.update(buffer, now);
  b.output(loss, OutputKind::metric, "loss");
  return finish(net, options.trained, optimizer.specs());
}

StepSet finish_set(Net& net, const IsTrained& trained) { return finish(net, trained, {}); }

}  // namespace lathe
