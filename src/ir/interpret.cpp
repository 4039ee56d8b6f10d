#include "ir/interpret.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lathe {

namespace {

// The graph that a node holds as a parameter, if it computes 16-bit values: a fused node rounds where its body does. In
// wider types this makes no difference worth the time.
GraphPtr narrow_body(const Node& n) {
  for (const auto& [name, attr] : n.op->to_attrs(n.params.get()))
    if (const GraphPtr* body = std::get_if<GraphPtr>(&attr); body && *body)
      if (std::ranges::any_of((*body)->types, [](const TensorType& t) { return is_16bit(t.dtype); })) return *body;
  return nullptr;
}

void run_body(const Graph& body, RefOuts outs, RefIns ins) {
  std::vector<HostTensor> inputs;
  for (const RefTensor& x : ins) inputs.push_back({x.type, std::vector<double>(x.data, x.data + x.numel())});
  const auto results = interpret(body, inputs, Precision::rounded);
  for (size_t i = 0; i < outs.size(); ++i) std::ranges::copy(results[i].data, outs[i].data);
}

}  // namespace

std::vector<HostTensor> interpret(const Graph& g, const std::vector<HostTensor>& inputs, Precision precision) {
  LATHE_USER_CHECK(inputs.size() == g.inputs.size(), "graph \"{}\": expected {} inputs, got {}", g.name,
                   g.inputs.size(), inputs.size());
  std::vector<std::vector<double>> data(g.types.size());
  // Values die after their last reader, so that the oracle runs real recipes in modest memory.
  std::vector<int32_t> last(g.types.size(), -1);
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (ValueId v : g.nodes[i].inputs) last[static_cast<size_t>(v)] = static_cast<int32_t>(i);
  for (const Output& o : g.outputs) last[static_cast<size_t>(o.value)] = static_cast<int32_t>(g.nodes.size());

  for (size_t i = 0; i < inputs.size(); ++i) {
    const ValueId v = g.inputs[i].value;
    LATHE_USER_CHECK(static_cast<int64_t>(inputs[i].data.size()) == g.type(v).numel(),
                     "input \"{}\": expected the elements of {}, got {}", g.inputs[i].name, to_string(g.type(v)),
                     inputs[i].data.size());
    data[static_cast<size_t>(v)] = inputs[i].data;
  }
  const auto as_ref = [&](ValueId v) { return RefTensor{g.type(v), data[static_cast<size_t>(v)].data()}; };
  std::vector<RefTensor> ins, outs;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    ins.clear();
    outs.clear();
    for (ValueId v : n.inputs) ins.push_back(as_ref(v));
    for (ValueId v : n.outputs) {
      data[static_cast<size_t>(v)].assign(static_cast<size_t>(g.type(v).numel()), 0.0);
      outs.push_back(as_ref(v));
    }
    if (const GraphPtr body = precision == Precision::rounded ? narrow_body(n) : nullptr)
      run_body(*body, outs, ins);
    else
      n.op->reference(outs, ins, n.params.get());
    for (const RefTensor& y : outs)
      if (precision == Precision::rounded || !is_float(y.type.dtype))
        for (int64_t k = 0; k < y.numel(); ++k) y[k] = round_to(y.type.dtype, y[k]);
    for (ValueId v : n.inputs)
      if (last[static_cast<size_t>(v)] == static_cast<int32_t>(i))
        std::vector<double>().swap(data[static_cast<size_t>(v)]);
  }
  std::vector<HostTensor> results;
  for (const Output& o : g.outputs) results.push_back({g.type(o.value), data[static_cast<size_t>(o.value)]});
  return results;
}

double relative_error(const HostTensor& actual, const HostTensor& expected) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  constexpr double kSmallestScale = 1e-6;  // results that are zero but for rounding
  if (actual.type != expected.type || actual.data.size() != expected.data.size()) return kInfinite;
  double scale = kSmallestScale, difference = 0;
  for (size_t i = 0; i < actual.data.size(); ++i) {
    const double a = actual.data[i], e = expected.data[i];
    if (std::isfinite(e)) scale = std::max(scale, std::abs(e));
    if (a == e || (std::isnan(a) && std::isnan(e))) continue;
    if (!is_float(expected.type.dtype) || !std::isfinite(a) || !std::isfinite(e)) return kInfinite;
    difference = std::max(difference, std::abs(a - e));
  }
  return difference / scale;
}

}  // namespace lathe
