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

namespace {

// A graph at work: node by node.
class Interpretation {
 public:
  Interpretation(const Graph& g, const std::vector<HostTensor>& inputs, Precision precision)
      : g_(g), precision_(precision), data_(g.types.size()), last_(g.types.size(), -1) {
    LATHE_USER_CHECK(inputs.size() == g.inputs.size(), "graph \"{}\": expected {} inputs, got {}", g.name,
                     g.inputs.size(), inputs.size());
    // Values die after their last reader, so that the oracle runs real recipes in modest memory.
    for (size_t i = 0; i < g.nodes.size(); ++i)
      for (ValueId v : g.nodes[i].inputs) last_[static_cast<size_t>(v)] = static_cast<int32_t>(i);
    for (const Output& o : g.outputs) last_[static_cast<size_t>(o.value)] = static_cast<int32_t>(g.nodes.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId v = g.inputs[i].value;
      LATHE_USER_CHECK(static_cast<int64_t>(inputs[i].data.size()) == g.type(v).numel(),
                       "input \"{}\": expected the elements of {}, got {}", g.inputs[i].name, to_string(g.type(v)),
                       inputs[i].data.size());
      data_[static_cast<size_t>(v)] = inputs[i].data;
    }
  }

  // The collective that is next, after all nodes before it; null: the graph is at its end.
  const Node* to_collective() {
    for (; at_ < g_.nodes.size() && !g_.nodes[at_].op->is_collective(); ++at_) {
      begin(g_.nodes[at_]);
      const Node& n = g_.nodes[at_];
      if (const GraphPtr body = precision_ == Precision::rounded ? narrow_body(n) : nullptr)
        run_body(*body, outs_, ins_);
      else
        n.op->reference(outs_, ins_, n.params.get());
      end(n);
    }
    if (at_ == g_.nodes.size()) return nullptr;
    begin(g_.nodes[at_]);
    return &g_.nodes[at_];
  }
  const std::vector<RefTensor>& ins() const { return ins_; }    // of the collective
  const std::vector<RefTensor>& outs() const { return outs_; }  // of the collective, to be written
  void go_on() { end(g_.nodes[at_++]); }                        // they are

  std::vector<HostTensor> results() const {
    std::vector<HostTensor> out;
    for (const Output& o : g_.outputs) out.push_back({g_.type(o.value), data_[static_cast<size_t>(o.value)]});
    return out;
  }

 private:
  RefTensor as_ref(ValueId v) { return {g_.type(v), data_[static_cast<size_t>(v)].data()}; }

  void begin(const Node& n) {
    ins_.clear();
    outs_.clear();
    for (ValueId v : n.inputs) ins_.push_back(as_ref(v));
    for (ValueId v : n.outputs) {
      data_[static_cast<size_t>(v)].assign(static_cast<size_t>(g_.type(v).numel()), 0.0);
      outs_.push_back(as_ref(v));
    }
  }
  void end(const Node& n) {
    for (const RefTensor& y : outs_)
      if (precision_ == Precision::rounded || !is_float(y.type.dtype))
        for (int64_t k = 0; k < y.numel(); ++k) y[k] = round_to(y.type.dtype, y[k]);
    for (ValueId v : n.inputs)
      if (last_[static_cast<size_t>(v)] == static_cast<int32_t>(&n - g_.nodes.data()))
        std::vector<double>().swap(data_[static_cast<size_t>(v)]);
  }

  const Graph& g_;
  const Precision precision_;
  std::vector<std::vector<double>> data_;
  std::vector<int32_t> last_;  // by value: the node that reads it last
  std::vector<RefTensor> ins_, outs_;
  size_t at_ = 0;
};

std::string place_of(const Node* n) {
  if (!n) return "has come to its end";
  const std::string layer = n->origin.empty() ? "" : fmt::format(" of \"{}\"", n->origin);
  return fmt::format("waits in {}{}", n->op->name(), layer);
}

}  // namespace

std::vector<HostTensor> interpret(const Graph& g, const std::vector<HostTensor>& inputs, Precision precision) {
  Interpretation run(g, inputs, precision);
  const Node* n = run.to_collective();
  LATHE_USER_CHECK(!n, "graph \"{}\": {} needs all ranks (interpret_ranks)", g.name, n ? n->op->name() : "");
  return run.results();
}

std::vector<std::vector<HostTensor>> interpret_ranks(std::span<const Graph* const> graphs,
                                                     const std::vector<std::vector<HostTensor>>& inputs,
                                                     Precision precision) {
  LATHE_USER_CHECK(!graphs.empty() && graphs.size() == inputs.size(), "expected a graph and inputs for each rank");
  std::vector<Interpretation> ranks;
  ranks.reserve(graphs.size());
  for (size_t r = 0; r < graphs.size(); ++r) ranks.emplace_back(*graphs[r], inputs[r], precision);
  std::vector<const Node*> at(graphs.size());
  for (;;) {
    std::vector<std::vector<RefTensor>> ins, outs;
    std::vector<const void*> params;
    for (size_t r = 0; r < ranks.size(); ++r) {
      at[r] = ranks[r].to_collective();
      const auto op = [](const Node* n) { return n ? n->op : nullptr; };
      LATHE_USER_CHECK(op(at[r]) == op(at[0]), "ranks wait for each other for ever: rank 0 {}, rank {} {}",
                       place_of(at[0]), r, place_of(at[r]));
      if (!at[r]) continue;
      ins.push_back(ranks[r].ins());
      outs.push_back(ranks[r].outs());
      params.push_back(at[r]->params.get());
    }
    if (!at[0]) break;
    at[0]->op->over_ranks(outs, ins, params);
    for (Interpretation& run : ranks) run.go_on();
  }
  std::vector<std::vector<HostTensor>> out;
  for (const Interpretation& run : ranks) out.push_back(run.results());
  return out;
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
