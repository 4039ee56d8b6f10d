#include "passes/precision.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ops/cast.h"
#include "ops/expand_nodes.h"

namespace lathe {
namespace {

// Losses, metrics and updates need the digits that 16 bits do not have.
bool is_product(const Graph& g, const Node& n) {
  return n.op->has(kProduct) && n.role == Role::model &&
         std::ranges::all_of(n.inputs, [&](ValueId v) { return g.type(v).dtype == DType::f32; });
}

// The node as a graph of its own.
Graph alone(const Graph& g, Node n) {
  Graph out;
  for (ValueId& v : n.inputs) {
    const ValueId x = out.add_value(g.type(v));
    out.inputs.push_back({x, InputKind::batch, "x" + std::to_string(x)});
    v = x;
  }
  for (ValueId& v : n.outputs) v = out.add_value(g.type(v));
  out.nodes.push_back(std::move(n));
  return out;
}

// Whether a composite that is no product itself has one in its expansion, or in those of the composites there. One that
// was given 16 bits computes as it was meant to.
bool holds_product(const Graph& g, const Node& n) {
  const auto is_narrow = [&](ValueId v) { return is_16bit(g.type(v).dtype); };
  if (n.op->has(kProduct) || n.role != Role::model || std::ranges::any_of(n.inputs, is_narrow)) return false;
  const Graph parts = expand_where(alone(g, n), [](const Graph&, const Node& m) { return !m.op->has(kProduct); });
  return std::ranges::any_of(parts.nodes, [&](const Node& m) { return is_product(parts, m); });
}

}  // namespace

bool computes_in_f16(const PassOptions& o) { return o.get<PrecisionOptions>().type == "f16"; }

Graph precision(Graph g, const PassContext& context) {
  const std::string& type = context.options.get<PrecisionOptions>().type;
  const DType t = parse_dtype(type).value_or(DType::u8);
  if (t == DType::f32) return g;
  LATHE_USER_CHECK(is_16bit(t), "train.precision: expected \"f32\", \"bf16\" or \"f16\", got \"{}\"", type);
  g = expand_where(std::move(g), holds_product);
  if (std::ranges::none_of(g.nodes, [&](const Node& n) { return is_product(g, n); })) return g;
  return rebuild(g, [&](Rebuild& r, const Node& n) -> std::optional<Values> {
    if (!is_product(g, n)) return std::nullopt;
    Builder& b = r.builder();
    Values in = r.mapped(n.inputs);
    // A value that several products read is cast for each: cse keeps one of the casts.
    for (Value& x : in) x = cast(x, t);
    Values out = b.add(*n.op, in, n.params);
    for (Value& y : out) y = cast(y, DType::f32);
    return out;
  });
}

}  // namespace lathe
