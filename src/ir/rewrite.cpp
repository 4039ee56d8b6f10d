#include "ir/rewrite.h"

#include <algorithm>
#include <utility>

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

Values Rebuild::mapped(std::span<const ValueId> old) const {
  Values out;
  out.reserve(old.size());
  for (ValueId v : old) out.push_back(mapped(v));
  return out;
}

void Rebuild::map(ValueId old, Value now) { map_[static_cast<size_t>(old)] = now.id(); }

void Rebuild::copy(const Node& n) {
  // The types are known: no need to ask the op's rule again.
  Graph& g = builder_.mutable_graph();
  Node copy{n.op, n.params, {}, {}, n.origin, n.role};
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
  // Names are those of the source: Builder::finish would look for equal ones by sorting them.
  Graph g = std::move(builder_.mutable_graph());
  g.outputs.reserve(source_.outputs.size());
  for (const Output& o : source_.outputs) {
    const auto at = [&](ValueId v) { return v < 0 ? v : map_[static_cast<size_t>(v)]; };
    g.outputs.push_back({at(o.value), o.kind, o.name, at(o.updates)});
  }
  return g;
}

Graph rebuild(const Graph& g, const std::function<std::optional<Values>(Rebuild&, const Node&)>& on_node) {
  Rebuild r(g);
  for (const Node& n : g.nodes) {
    const InPlaceOf place(r.builder(), n);
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
    const InPlaceOf place(r.builder(), n);
    if (auto now = on_node(r, n))
      r.replace(n, *now);
    else
      r.take(n);
  }
  return r.finish();
}

Edit::Edit(Graph g)
    : builder_(std::move(g)),
      old_(builder_.graph().nodes.size()),
      old_outputs_(builder_.graph().outputs.size()),
      redirected_(builder_.graph().types.size(), -1) {
  for (const Input& in : builder_.graph().inputs)
    if (is_state(in.kind)) states_.emplace(in.name, in.value);
}

void Edit::set_input(size_t node, size_t k, Value now) {
  Graph& g = builder_.mutable_graph();
  ValueId& at = g.nodes[node].inputs[k];
  LATHE_CHECK(g.type(at) == now.type(), "{} replaces {}", to_string(now.type()), to_string(g.type(at)));
  at = now.id();
}

void Edit::set_output(size_t output, Value now) {
  Graph& g = builder_.mutable_graph();
  Output& o = g.outputs[output];
  LATHE_CHECK(g.type(o.value) == now.type(), "{}: {} replaces {}", o.name, to_string(now.type()),
              to_string(g.type(o.value)));
  o.value = now.id();
}

void Edit::redirect(Value old, Value now) {
  LATHE_CHECK(old.type() == now.type(), "{} replaces {}", to_string(now.type()), to_string(old.type()));
  LATHE_CHECK(static_cast<size_t>(old.id()) < redirected_.size(), "%{} is no value of before", old.id());
  redirected_[static_cast<size_t>(old.id())] = now.id();
}

Value Edit::state_input(StateSpec spec, StateTable& table) {
  const auto [found, made] = states_.emplace(spec.name, -1);
  if (made) found->second = builder_.input(spec.type, spec.kind, spec.name).id();
  table.add(std::move(spec));
  return value(found->second);
}

Graph Edit::finish() {
  Graph g = builder_.finish();
  const auto follow = [&](ValueId& v) {
    if (static_cast<size_t>(v) < redirected_.size() && redirected_[static_cast<size_t>(v)] >= 0)
      v = redirected_[static_cast<size_t>(v)];
  };
  for (size_t i = 0; i < old_; ++i)
    for (ValueId& v : g.nodes[i].inputs) follow(v);
  for (size_t i = 0; i < old_outputs_; ++i) follow(g.outputs[i].value);
  const auto def = definitions(g);
  std::vector<Node> ordered;
  ordered.reserve(g.nodes.size());
  enum : uint8_t { kNew, kOpen, kDone };
  std::vector<uint8_t> mark(g.nodes.size(), kNew);
  std::vector<int32_t> stack, previous(g.nodes.size(), -1);  // previous: of ordered nodes, which keep their order
  for (int32_t i = 0, last = -1; i < static_cast<int32_t>(g.nodes.size()); ++i)
    if (g.nodes[static_cast<size_t>(i)].op->has(kOrdered)) previous[static_cast<size_t>(i)] = std::exchange(last, i);
  for (int32_t i = 0; i < static_cast<int32_t>(g.nodes.size()); ++i) {
    stack.push_back(i);
    while (!stack.empty()) {
      const auto at = static_cast<size_t>(stack.back());
      if (mark[at] == kNew) {
        mark[at] = kOpen;
        const auto visit = [&](int32_t d) {
          if (d < 0 || mark[static_cast<size_t>(d)] == kDone) return;
          LATHE_CHECK(mark[static_cast<size_t>(d)] == kNew, "an edit of graph {} made a cycle", g.name);
          stack.push_back(d);
        };
        visit(previous[at]);
        const ValueIds& in = g.nodes[at].inputs;
        for (size_t k = in.size(); k-- > 0;)  // what defines the first argument comes first
          visit(def[static_cast<size_t>(in[k])]);
        continue;
      }
      stack.pop_back();
      if (mark[at] == kDone) continue;
      mark[at] = kDone;
      ordered.push_back(std::move(g.nodes[at]));
    }
  }
  g.nodes = std::move(ordered);
  return g;
}

Value clone_cone(Builder& b, Value of, ArgValues old, ArgValues now) {
  Graph& g = b.mutable_graph();
  const size_t count = g.nodes.size();
  std::vector<bool> needed(g.types.size(), false);
  needed[static_cast<size_t>(of.id())] = true;
  std::vector<bool> above(count, false);
  for (size_t i = count; i-- > 0;) {
    const Node& n = g.nodes[i];
    above[i] = std::ranges::any_of(n.outputs, [&](ValueId v) { return needed[static_cast<size_t>(v)]; });
    if (!above[i]) continue;
    for (ValueId v : n.inputs) needed[static_cast<size_t>(v)] = true;
  }
  std::vector<ValueId> map(g.types.size(), -1);
  for (size_t i = 0; i < old.size(); ++i) {
    LATHE_CHECK(old[i].type() == now[i].type(), "{} stands for {}", to_string(now[i].type()), to_string(old[i].type()));
    map[static_cast<size_t>(old[i].id())] = now[i].id();
  }
  for (size_t i = 0; i < count; ++i) {
    const auto moved = [&](ValueId v) { return map[static_cast<size_t>(v)] >= 0; };
    if (!above[i] || std::ranges::none_of(g.nodes[i].inputs, moved)) continue;
    Node copy = g.nodes[i];
    if (std::ranges::all_of(copy.outputs, moved)) continue;  // one of `old` itself
    for (ValueId& v : copy.inputs)
      if (moved(v)) v = map[static_cast<size_t>(v)];
    for (ValueId& v : copy.outputs) {
      const ValueId made = g.add_value(g.type(v));
      if (!moved(v)) map[static_cast<size_t>(v)] = made;
      v = made;
    }
    g.nodes.push_back(std::move(copy));
  }
  const ValueId result = map[static_cast<size_t>(of.id())];
  return result >= 0 ? b.value(result) : of;
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
  const InPlaceOf place(b, n);
  Values out = n.op->expand(b, args, n.params.get());
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
