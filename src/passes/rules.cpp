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

class RuleTable {
 public:
  explicit RuleTable(std::span<const Rule> rules) : rules_(rules) {
    for (size_t i = 0; i < rules.size(); ++i) by_op_[rules[i].op].push_back(i);
    const std::vector<size_t> of_any = any();
    for (auto& [op, list] : by_op_)
      if (!op.empty()) list.insert(list.end(), of_any.begin(), of_any.end());
  }
  const std::vector<size_t>& of(const OpDef& op) const {
    const auto it = by_op_.find(op.name());
    return it != by_op_.end() ? it->second : any();
  }
  const Rule& operator[](size_t i) const { return rules_[i]; }

 private:
  const std::vector<size_t>& any() const {
    static const std::vector<size_t> none;
    const auto it = by_op_.find("");
    return it != by_op_.end() ? it->second : none;
  }
  std::span<const Rule> rules_;
  std::unordered_map<std::string_view, std::vector<size_t>> by_op_;
};

// One walk over the graph in order. Inputs are rewritten before their readers, so chains collapse in one walk.
class Walk {
 public:
  Walk(const Graph& g, const RuleTable& rules, std::vector<int64_t>& counts)
      : g_(g), rules_(rules), counts_(counts), r_(g), source_uses_(g.types.size(), 0) {
    for (const Node& n : g.nodes)
      for (ValueId v : n.inputs) ++source_uses_[static_cast<size_t>(v)];
    for (const Output& o : g.outputs) ++source_uses_[static_cast<size_t>(o.value)];
    for (const Input& in : g.inputs) note_uses(in.value);
  }

  bool run() {
    for (const Node& n : g_.nodes) {
      if (!rewrite(n)) r_.copy(n);
      note_definitions();
      for (ValueId v : n.outputs) note_uses(v);
    }
    return any_;
  }
  Graph finish() { return r_.finish(); }

 private:
  bool rewrite(const Node& n) {
    if (n.outputs.size() != 1) return false;
    const auto& rows = rules_.of(*n.op);
    if (rows.empty()) return false;
    r_.builder().set_origin(n.origin);
    const Values inputs = r_.mapped(n.inputs);
    const Match m(r_.builder(), n, inputs, g_.type(n.outputs[0]), def_, uses_);
    for (size_t i : rows) {
      const Value now = rules_[i].build(m);
      if (!now.valid()) continue;
      LATHE_CHECK(now.type() == m.out, "rule {}: {} replaces {}", rules_[i].name, to_string(now.type()),
                  to_string(m.out));
      r_.replace(n, {now});
      ++counts_[i];
      return any_ = true;
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
  void note_uses(ValueId source) {
    const size_t id = static_cast<size_t>(r_.mapped(source).id());
    if (uses_.size() <= id) uses_.resize(id + 1, 0);
    uses_[id] += source_uses_[static_cast<size_t>(source)];
  }

  const Graph& g_;
  const RuleTable& rules_;
  std::vector<int64_t>& counts_;
  Rebuild r_;
  std::vector<int32_t> source_uses_, def_, uses_;
  size_t noted_ = 0;
  bool any_ = false;
};

}  // namespace

Graph apply_rules(Graph g, std::span<const Rule> rules, std::vector<Fired>* fired) {
  const RuleTable table(rules);
  std::vector<int64_t> counts(rules.size(), 0);
  // Every row shrinks the graph or moves a node towards the outputs; the bound only catches two rows that undo each
  // other.
  constexpr int kMaxWalks = 200;
  bool any = false;
  for (int walk = 0;; ++walk) {
    LATHE_CHECK(walk < kMaxWalks, "the rules do not settle: {} ...", rules[0].name);
    // Dead readers would hide that a value has one reader.
    Graph live = drop_dead(g);
    Walk w(live, table, counts);
    if (!w.run()) {
      if (any) g = std::move(live);
      break;
    }
    g = w.finish();
    any = true;
  }
  if (fired)
    for (size_t i = 0; i < rules.size(); ++i)
      if (counts[i] > 0) fired->push_back({rules[i].name, counts[i]});
  return g;
}

}  // namespace lathe
