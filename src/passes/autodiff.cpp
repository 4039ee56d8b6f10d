#include "passes/autodiff.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ops/elementwise.h"
#include "ops/expand_nodes.h"
#include "ops/full.h"
#include "ops/grad.h"

namespace lathe {
namespace {

int32_t first_grad(const Graph& g) {
  for (size_t i = 0; i < g.nodes.size(); ++i)
    if (g.nodes[i].op == &grad_op) return static_cast<int32_t>(i);
  return -1;
}

// Nodes that lie between the wrt values and the loss of a grad node: the ones whose rules are needed.
std::vector<bool> active_nodes(const Graph& g, const Node& grad, int32_t end) {
  std::vector<bool> from_wrt(g.types.size(), false), to_loss(g.types.size(), false),
      active(static_cast<size_t>(end), false);
  for (size_t i = 1; i < grad.inputs.size(); ++i) from_wrt[static_cast<size_t>(grad.inputs[i])] = true;
  const auto any = [](const ValueIds& values, const std::vector<bool>& set) {
    return std::ranges::any_of(values, [&](ValueId v) { return set[static_cast<size_t>(v)]; });
  };
  for (int32_t i = 0; i < end; ++i) {
    const Node& n = g.nodes[static_cast<size_t>(i)];
    if (!n.op->is_differentiable() || !any(n.inputs, from_wrt)) continue;
    for (ValueId v : n.outputs)
      if (is_float(g.type(v).dtype)) from_wrt[static_cast<size_t>(v)] = true;
  }
  to_loss[static_cast<size_t>(grad.inputs[0])] = true;
  for (int32_t i = end - 1; i >= 0; --i) {
    const Node& n = g.nodes[static_cast<size_t>(i)];
    if (!any(n.outputs, to_loss)) continue;
    for (ValueId v : n.inputs) to_loss[static_cast<size_t>(v)] = true;
    active[static_cast<size_t>(i)] = n.op->is_differentiable() && any(n.inputs, from_wrt) && any(n.outputs, from_wrt);
  }
  return active;
}

// Replaces active composites that have no vjp of their own by their expansions, until none is left.
Graph expand_active(Graph g) {
  return expand_marked(std::move(g), [](const Graph& now, const std::vector<bool>&) {
    const int32_t at = first_grad(now);
    std::vector<bool> marked = active_nodes(now, now.nodes[static_cast<size_t>(at)], at);
    for (size_t i = 0; i < marked.size(); ++i) marked[i] = marked[i] && !now.nodes[i].op->vjp;
    marked.resize(now.nodes.size(), false);
    return marked;
  });
}

// Appends the derivative of loss by each of wrt to the builder, whose graph holds their definitions.
Values differentiate(Builder& b, Value loss, const Values& wrt, const std::vector<bool>& active) {
  std::vector<Value> cotangent(b.graph().types.size());
  cotangent[static_cast<size_t>(loss.id())] = full(b, loss.type(), 1.0);
  for (size_t k = active.size(); k-- > 0;) {
    if (!active[k]) continue;
    Values x, y, dy;
    const Node& n = b.graph().nodes[k];  // appending nodes moves it: what is needed then is copied
    const OpDef& op = *n.op;
    const ParamsPtr params = n.params;
    bool any = false;
    for (ValueId v : n.inputs) x.push_back(b.value(v));
    for (ValueId v : n.outputs) {
      y.push_back(b.value(v));
      dy.push_back(cotangent[static_cast<size_t>(v)]);
      any = any || dy.back().valid();
    }
    if (!any) continue;
    const InPlaceOf place(b, n, kBackwardOrigin);
    const Values dx = op.vjp(Vjp{b, x, y, dy}, params.get());
    LATHE_USER_CHECK(dx.size() == x.size(), "vjp of {}: expected {} cotangents, one per input, got {}", op.name(),
                     x.size(), dx.size());
    for (size_t i = 0; i < dx.size(); ++i) {
      if (!dx[i].valid() || !is_float(x[i].dtype())) continue;
      LATHE_USER_CHECK(&dx[i].builder() == &b,
                       "vjp of {}: expected cotangents of the graph of Vjp::b, got one of another", op.name());
      LATHE_USER_CHECK(dx[i].type() == x[i].type(), "vjp of {}: expected cotangent {} to be {} as its input, got {}",
                       op.name(), i, to_string(x[i].type()), to_string(dx[i].type()));
      Value& sum = cotangent[static_cast<size_t>(x[i].id())];
      sum = sum.valid() ? sum + dx[i] : dx[i];
    }
  }
  Values out;
  for (const Value& v : wrt) {
    const Value d = cotangent[static_cast<size_t>(v.id())];
    out.push_back(d.valid() ? d : zeros(b, v.type()));
  }
  return out;
}

}  // namespace

Graph autodiff(Graph g, const PassContext&) {
  while (first_grad(g) >= 0) {
    g = expand_active(std::move(g));
    const int32_t at = first_grad(g);
    const auto active = active_nodes(g, g.nodes[static_cast<size_t>(at)], at);
    int32_t i = -1;
    g = rebuild(std::move(g), [&](Rebuild& r, const Node& n) -> std::optional<Values> {
      if (++i != at) return std::nullopt;
      const Values x = r.mapped(n.inputs);
      return differentiate(r.builder(), x[0], Values(x.begin() + 1, x.end()), active);
    });
  }
  return g;
}

}  // namespace lathe
