#include "passes/rules.h"

#include <unordered_map>

#include "ir/live_nodes.h"
#include "ops/full.h"

namespace lathe {

const Node* Match::node(Value v) const {
  const size_t id = static_cast<size_t>(v.id());
  const int32_t at = id < def_.size() ? def_[id] : -1;
  return at < 0 ? nullptr : &b.graph().nodes[static_cast<size_t>(at)];
}

bool Match::is(Value v, std::string_view op) const {
  const Node* d = node(v);
  return d && d->is(op);
}

Value Match::arg(Value v, int i) const { return b.value(node(v)->inputs[static_cast<size_t>(i)]); }

std::optional<double> Match::constant(Value v) const {
  const Node* d = node(v);
  if (!d || d->op != &full_op) return std::nullopt;
  return d->get<FullParams>().value;
}

bool Match::only_use(Value v) const {
  const size_t id = static_cast<size_t>(v.id());
  return id >= uses_.size() || uses_[id] <= 1;
}

namespace {

// Which rows are for an op, those for all ops included.
class RuleTable {
 public:
  explicit RuleTable(std::span<const Rule> rules) : rules_(rules) {}
  const std::vector<size_t>& of(const OpDef& op) {
    if (const auto it = by_op_.find(&op); it != by_op_.end()) return it->second;
    std::vector<size_t>& rows = by_op_[&op];
    for (size_t i = 0; i < rules_.size(); ++i)
      if (rules_[i].op == op.name()) rows.push_back(i);
    for (size_t i = 0; i < rules_.size(); ++i)
      if (rules_[i].op.empty()) rows.push_back(i);
    return rows;
  }
  const Rule& operator[](size_t i) const { return rules_[i]; }

 private:
  std::span<const Rule> rules_;
  std::unordered_map<const OpDef*, std::vector<size_t>> by_op_;  // those that were asked for
};

// Of the nodes that are needed for the outputs: dead readers would hide that a value has one reader.
struct Live {
  explicit Live(const Graph& g) : nodes(live_nodes(g)), uses(g.types.size(), 0) {
    for (size_t i = 0; i < g.nodes.size(); ++i)
      if (nodes[i])
        for (ValueId v : g.nodes[i].inputs) ++uses[static_cast<size_t>(v)];
    for (const Output& o : g.outputs) ++uses[static_cast<size_t>(o.value)];
  }
  std::vector<bool> nodes;    // by node
  std::vector<int32_t> uses;  // by value
};

// The first node that a row fires for, or the number of nodes. The graph is as it was then: most walks end in a graph
// that has settled, and to find that out nothing has to be copied.
size_t find_first(Graph& g, const Live& live, RuleTable& rules) {
  const size_t count = g.nodes.size(), values = g.types.size();
  const std::vector<int32_t> def = definitions(g);
  Builder b(std::move(g));
  size_t found = count;
  Values inputs;
  for (size_t i = 0; i < count && found == count; ++i) {
    if (!live.nodes[i] || b.graph().nodes[i].outputs.size() != 1) continue;
    const auto& rows = rules.of(*b.graph().nodes[i].op);
    if (rows.empty()) continue;
    // Out of the list, which grows where a row appends nodes before it finds that it does not apply.
    Node n = std::move(b.mutable_graph().nodes[i]);
    const TensorType out = b.graph().type(n.outputs[0]);
    inputs.clear();
    for (ValueId v : n.inputs) inputs.push_back(b.value(v));
    const Match m(b, n, inputs, out, def, live.uses);
    for (size_t row : rows)
      if (rules[row].build(m).valid()) {
        found = i;
        break;
      }
    b.mutable_graph().nodes.resize(count);
    b.mutable_graph().types.truncate(values);
    b.mutable_graph().nodes[i] = std::move(n);
  }
  g = std::move(b.mutable_graph());
  return found;
}

// One walk over the graph in order, from the first node that a row fires for. Inputs are rewritten before their
// readers, so chains collapse in one walk. Takes the nodes out of the graph.
class Walk {
 public:
  Walk(Graph& g, const Live& live, RuleTable& rules, std::vector<int64_t>& counts)
      : g_(g), live_(live), rules_(rules), counts_(counts), r_(g) {
    for (const Input& in : g.inputs) note_uses(r_.mapped(in.value).id(), in.value);
  }

  Graph run(size_t first) {
    for (size_t i = 0; i < g_.nodes.size(); ++i) {
      if (!live_.nodes[i]) continue;
      Node& n = g_.nodes[i];
      sources_ = n.outputs;
      if (i < first || !rewrite(n)) r_.take(n);
      note_definitions();
      for (ValueId v : sources_) note_uses(r_.mapped(v).id(), v);
    }
    return r_.finish();
  }

 private:
  bool rewrite(const Node& n) {
    if (n.outputs.size() != 1) return false;
    const auto& rows = rules_.of(*n.op);
    if (rows.empty()) return false;
    const InPlaceOf place(r_.builder(), n);
    const Values inputs = r_.mapped(n.inputs);
    const Match m(r_.builder(), n, inputs, g_.type(n.outputs[0]), def_, uses_);
    for (size_t i : rows) {
      const Value now = rules_[i].build(m);
      if (!now.valid()) continue;
      LATHE_CHECK(now.type() == m.out, "rule {}: {} replaces {}", rules_[i].name, to_string(now.type()),
                  to_string(m.out));
      r_.replace(n, {now});
      ++counts_[i];
      return true;
    }
    return false;
  }

  void note_definitions() {
    const Graph& now = r_.builder().graph();
    def_.resize(now.types.size(), -1);
    uses_.resize(now.types.size(), 0);
    for (; noted_ < now.nodes.size(); ++noted_)
      for (ValueId v : now.nodes[noted_].outputs) def_[static_cast<size_t>(v)] = static_cast<int32_t>(noted_);
  }

  // A new value is used as often as the values of the source that it stands for.
  void note_uses(ValueId now, ValueId source) {
    const size_t id = static_cast<size_t>(now);
    if (uses_.size() <= id) uses_.resize(id + 1, 0);
    uses_[id] += live_.uses[static_cast<size_t>(source)];
  }

  Graph& g_;
  const Live& live_;
  RuleTable& rules_;
  std::vector<int64_t>& counts_;
  Rebuild r_;
  ValueIds sources_;  // what the node defines in the source
  std::vector<int32_t> def_, uses_;
  size_t noted_ = 0;
};

}  // namespace

Graph apply_rules(Graph g, std::span<const Rule> rules, std::vector<Fired>* fired) {
  RuleTable table(rules);
  std::vector<int64_t> counts(rules.size(), 0);
  // Every row shrinks the graph or moves a node towards the outputs; the bound only catches two rows that undo each
  // other.
  constexpr int kMaxWalks = 200;
  bool any = false;
  for (int walk = 0;; ++walk) {
    LATHE_CHECK(walk < kMaxWalks, "the rules do not settle: {} ...", rules[0].name);
    const Live live(g);
    const size_t first = find_first(g, live, table);
    if (first == g.nodes.size()) break;
    g = Walk(g, live, table, counts).run(first);
    any = true;
  }
  if (any) g = drop_dead(std::move(g));
  if (fired)
    for (size_t i = 0; i < rules.size(); ++i)
      if (counts[i] > 0) fired->push_back({rules[i].name, counts[i]});
  return g;
}

}  // namespace lathe
