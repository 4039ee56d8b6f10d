#include "ir/rewrite.h"

namespace lathe {

Rebuild::Rebuild(const Graph& source) : source_(source), builder_(source.name), map_(source.types.size(), -1) {
  Graph& g = builder_.mutable_graph();
  g.types.reserve(source.types.size());
  g.nodes.reserve(source.nodes.size());
  for (const Input& in : source.inputs)
    map_[static_cast<size_t>(in.value)] = builder_.input(source.type(in.value), in.kind, in.name).id();
}

Value Rebuild::mapped(ValueId old) const {
  const ValueId now = map_[static_cast<size_t>(old)];
  LATHE_CHECK(now >= 0, "value %{} is read before it is defined", old);
  return const_cast<Builder&>(builder_).value(now);
}

Values Rebuild::mapped(const std::vector<ValueId>& old) const {
  Values out;
  out.reserve(old.size());
  for (ValueId v : old) out.push_back(mapped(v));
  return out;
}

void Rebuild::map(ValueId old, Value now) { map_[static_cast<size_t>(old)] = now.id(); }

void Rebuild::copy(const Node& n) {
  // The types are known: no need to ask the op's rule again.
  Graph& g = builder_.mutable_graph();
  Node copy{n.op, n.params, {}, {}, n.origin};
  copy.inputs.reserve(n.inputs.size());
  for (ValueId v : n.inputs) copy.inputs.push_back(mapped(v).id());
  for (ValueId v : n.outputs) {
    copy.outputs.push_back(g.add_value(source_.type(v)));
    map_[static_cast<size_t>(v)] = copy.outputs.back();
  }
  g.nodes.push_back(std::move(copy));
}

void Rebuild::take(Node& n) {
  Graph& g = builder_.mutable_graph();
  for (ValueId& v : n.inputs) v = mapped(v).id();
  for (ValueId& v : n.outputs) {
    const ValueId now = g.add_value(source_.type(v));
    map_[static_cast<size_t>(v)] = now;
    v = now;
  }
  g.nodes.push_back(std::move(n));
}

void Rebuild::replace(const Node& n, const Values& now) {
  LATHE_CHECK(now.size() == n.outputs.size(), "{} values replace the {} outputs of {}", now.size(), n.outputs.size(),
              n.op->name());
  for (size_t i = 0; i < now.size(); ++i) {
    LATHE_CHECK(now[i].type() == source_.type(n.outputs[i]), "{}: {} replaces {}", n.op->name(),
                to_string(now[i].type()), to_string(source_.type(n.outputs[i])));
    map(n.outputs[i], now[i]);
  }
}

Graph Rebuild::finish() {
  Graph g = builder_.finish();
  for (const Output& o : source_.outputs) {
    const auto at = [&](ValueId v) { return v < 0 ? v : map_[static_cast<size_t>(v)]; };
    g.outputs.push_back({at(o.value), o.kind, o.name, at(o.updates)});
  }
  return g;
}

Graph rebuild(const Graph& g, const std::function<std::optional<Values>(Rebuild&, const Node&)>& on_node) {
  Rebuild r(g);
  for (const Node& n : g.nodes) {
    r.builder().set_origin(n.origin);
    if (auto now = on_node(r, n))
      r.replace(n, *now);
    else
      r.copy(n);
  }
  return r.finish();
}

Graph rebuild(Graph&& g, const std::function<std::optional<Values>(Rebuild&, const Node&)>& on_node) {
  Rebuild r(g);
  for (Node& n : g.nodes) {
    r.builder().set_origin(n.origin);
    if (auto now = on_node(r, n))
      r.replace(n, *now);
    else
      r.take(n);
  }
  return r.finish();
}

Values inline_graph(Builder& b, const Graph& body, ArgValues args) {
  LATHE_CHECK(args.size() == body.inputs.size());
  std::vector<Value> map(body.types.size());
  for (size_t i = 0; i < args.size(); ++i) map[static_cast<size_t>(body.inputs[i].value)] = args[i];
  for (const Node& n : body.nodes) {
    Values in;
    for (ValueId v : n.inputs) in.push_back(map[static_cast<size_t>(v)]);
    const Values out = b.add(*n.op, in, n.params);
    for (size_t i = 0; i < out.size(); ++i) map[static_cast<size_t>(n.outputs[i])] = out[i];
  }
  Values results;
  for (const Output& o : body.outputs) results.push_back(map[static_cast<size_t>(o.value)]);
  return results;
}

Values expand_node(Builder& b, const Node& n, ArgValues args) {
  LATHE_CHECK(n.op->expand, "{} has no expansion", n.op->name());
  const std::string saved = b.origin();
  b.set_origin(n.origin);
  Values out = n.op->expand(b, args, n.params.get());
  b.set_origin(saved);
  for (const Value& v : out)
    LATHE_USER_CHECK(v.valid() && &v.builder() == &b, "{}: expected values of the graph it is given of its expand()",
                     n.op->name());
  return out;
}

void check_expansion_ends(const Graph& g, int depth, const OpDef& op) {
  // Ops may expand to themselves on smaller inputs; nothing nests this deep, or grows like this once it is deep.
  constexpr int kMostDepth = 64, kDeep = 12;
  constexpr size_t kMostNodes = size_t{1} << 18;
  LATHE_USER_CHECK(depth < kMostDepth && (depth < kDeep || g.nodes.size() < kMostNodes),
                   "{}: its expansion has no end: after {} expansions within expansions the graph has {} nodes",
                   op.name(), depth, g.nodes.size());
}

}  // namespace lathe
