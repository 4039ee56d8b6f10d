#include "ir/graph.h"

#include <algorithm>
#include <unordered_map>

namespace lathe {

std::string_view to_string(InputKind k) {
  switch (k) {
    case InputKind::param: return "param";
    case InputKind::buffer: return "buffer";
    case InputKind::optimizer: return "optimizer";
    case InputKind::gradient: return "gradient";
    case InputKind::batch: return "batch";
    case InputKind::step: return "step";
  }
  return "?";
}

std::string_view to_string(OutputKind k) {
  switch (k) {
    case OutputKind::state: return "state";
    case OutputKind::metric: return "metric";
    case OutputKind::result: return "result";
  }
  return "?";
}

std::string_view to_string(Role r) {
  switch (r) {
    case Role::model: return "model";
    case Role::loss: return "loss";
    case Role::metric: return "metric";
    case Role::update: return "update";
  }
  return "?";
}

Types Graph::types_of(std::span<const ValueId> ids) const {
  Types out;
  out.reserve(ids.size());
  for (ValueId v : ids) out.push_back(type(v));
  return out;
}

Cost Graph::cost(const Node& n) const { return n.op->cost(types_of(n.inputs), types_of(n.outputs), n.params.get()); }

namespace {

// Values numbered by order of definition: inputs first, then outputs of nodes.
std::vector<int32_t> canonical_numbers(const Graph& g) {
  std::vector<int32_t> number(g.types.size(), -1);
  int32_t next = 0;
  for (const Input& in : g.inputs) number[static_cast<size_t>(in.value)] = next++;
  for (const Node& n : g.nodes)
    for (ValueId v : n.outputs) number[static_cast<size_t>(v)] = next++;
  return number;
}

}  // namespace

bool structurally_equal(const Graph& a, const Graph& b) {
  if (a.name != b.name || a.inputs.size() != b.inputs.size() || a.nodes.size() != b.nodes.size() ||
      a.outputs.size() != b.outputs.size())
    return false;
  const auto na = canonical_numbers(a), nb = canonical_numbers(b);
  const auto same = [&](ValueId x, ValueId y) {
    if (x < 0 || y < 0) return x == y;
    return na[static_cast<size_t>(x)] == nb[static_cast<size_t>(y)];
  };
  const auto same_list = [&](const ValueIds& x, const ValueIds& y) {
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), same);
  };
  for (size_t i = 0; i < a.inputs.size(); ++i) {
    const Input &x = a.inputs[i], &y = b.inputs[i];
    if (x.kind != y.kind || x.name != y.name || a.type(x.value) != b.type(y.value)) return false;
  }
  for (size_t i = 0; i < a.nodes.size(); ++i) {
    const Node &x = a.nodes[i], &y = b.nodes[i];
    if (x.op != y.op || x.role != y.role || !same_list(x.inputs, y.inputs) || x.outputs.size() != y.outputs.size())
      return false;
    for (size_t k = 0; k < x.outputs.size(); ++k)
      if (a.type(x.outputs[k]) != b.type(y.outputs[k])) return false;
    if (x.params != y.params && !equal(x.op->to_attrs(x.params.get()), y.op->to_attrs(y.params.get()))) return false;
  }
  for (size_t i = 0; i < a.outputs.size(); ++i) {
    const Output &x = a.outputs[i], &y = b.outputs[i];
    if (x.kind != y.kind || x.name != y.name || !same(x.value, y.value) || !same(x.updates, y.updates)) return false;
  }
  return true;
}

uint64_t structural_hash(const Graph& g) {
  const auto number = canonical_numbers(g);
  uint64_t h = hash_combine(g.inputs.size(), g.nodes.size());
  for (const Node& n : g.nodes) {
    h = hash_combine(h, std::hash<std::string_view>{}(n.op->name()));
    h = hash_combine(h, hash(n.op->to_attrs(n.params.get())));
    for (ValueId v : n.inputs) h = hash_combine(h, static_cast<uint64_t>(number[static_cast<size_t>(v)]));
  }
  for (const Output& o : g.outputs) h = hash_combine(h, static_cast<uint64_t>(number[static_cast<size_t>(o.value)]));
  return h;
}

std::vector<int32_t> definitions(const Graph& g) {
  std::vector<int32_t> def(g.types.size(), -1);
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (ValueId v : g.nodes[i].outputs) def[static_cast<size_t>(v)] = static_cast<int32_t>(i);
  return def;
}

std::vector<std::vector<int32_t>> readers(const Graph& g) {
  std::vector<std::vector<int32_t>> out(g.types.size());
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (ValueId v : g.nodes[i].inputs) {
      auto& list = out[static_cast<size_t>(v)];
      if (list.empty() || list.back() != static_cast<int32_t>(i)) list.push_back(static_cast<int32_t>(i));
    }
  return out;
}

}  // namespace lathe
