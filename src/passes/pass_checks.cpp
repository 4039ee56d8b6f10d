#include "passes/pass_checks.h"

#include <algorithm>
#include <map>

#include "ops/grad.h"
#include "ops/gradient.h"

namespace lathe {
namespace {

// Equal for graphs that are equal up to the numbering of values and share their parameter objects.
uint64_t identity_hash(const Graph& g) {
  std::vector<uint64_t> number(g.types.size(), 0);
  uint64_t next = 0, h = hash_combine(g.inputs.size(), g.nodes.size());
  const auto of = [&](ValueId v) { return v < 0 ? ~uint64_t{0} : number[static_cast<size_t>(v)]; };
  for (const Input& in : g.inputs) number[static_cast<size_t>(in.value)] = ++next;
  for (const Node& n : g.nodes) {
    h = hash_combine(h, reinterpret_cast<uintptr_t>(n.op));
    h = hash_combine(h, reinterpret_cast<uintptr_t>(n.params.get()));
    for (ValueId v : n.inputs) h = hash_combine(h, of(v));
    for (ValueId v : n.outputs) number[static_cast<size_t>(v)] = ++next;
  }
  for (const Output& o : g.outputs) h = hash_combine(hash_combine(h, of(o.value)), of(o.updates));
  return h;
}

bool is_training(const Graph& g) {
  return std::ranges::any_of(g.nodes, [](const Node& n) { return n.op == &grad_op || n.op == &gradient_op; });
}

constexpr Role kKeptRoles[] = {Role::model, Role::loss, Role::update};

// Which roles the nodes of each graph have that is yet to be differentiated, as bits; of others none. Behind autodiff
// nodes of several roles may become one.
std::vector<unsigned> roles_of(const StepSet& set) {
  std::vector<unsigned> out;
  for (const Graph& g : set.graphs) {
    out.push_back(0);
    if (std::ranges::none_of(g.nodes, [](const Node& n) { return n.op == &grad_op; })) continue;
    for (const Node& n : g.nodes) out.back() |= 1u << static_cast<unsigned>(n.role);
  }
  return out;
}

// What a pass must leave to those who plan and run the set: graphs with their names, the state table, the outputs in
// their order, ordered nodes in theirs. Inputs may go, none may come. What the row says is touched is left to verify.
class PortCheck {
 public:
  PortCheck(const PassEntry& pass, MadeBy made_by) : pass_(pass), made_by_(made_by) {}

  // A pass may not make a training graph forget what its nodes are for.
  void check_roles(const std::vector<unsigned>& before, const StepSet& after) const {
    const std::vector<unsigned> now = roles_of(after);
    for (size_t i = 0; i < before.size(); ++i)
      for (const Role role : kKeptRoles)
        if (const unsigned bit = 1u << static_cast<unsigned>(role); now[i] != 0 && (before[i] & bit) && !(now[i] & bit))
          fail(fmt::format("graph \"{}\": expected nodes to keep their roles, got none of the {}", after.graphs[i].name,
                           to_string(role)));
  }

  void check(const StepSet& before, const StepSet& after) const {
    if (!touches(kTouchesState) && before.state != after.state) check_rows(before.state, after.state);
    if (touches(kTouchesGraphs)) {
      // Of graphs that stay.
      for (const Graph& g : before.graphs)
        if (const Graph* now = after.find_graph(g.name)) check(g, *now);
      return;
    }
    if (before.graphs.size() != after.graphs.size())
      fail(fmt::format("expected to keep the {} graphs, got {}", before.graphs.size(), after.graphs.size()));
    for (size_t i = 0; i < before.graphs.size(); ++i) check(before.graphs[i], after.graphs[i]);
  }

  [[noreturn]] void fail(const std::string& what) const {
    const std::string text = fmt::format("pass {}: {}{}", pass_.name, what,
                                         pass_.touches == kTouchesNothing ? "" : " (its row says what it may touch)");
    if (made_by_ == MadeBy::caller) throw UserError(text);
    throw InternalError(text);
  }

 private:
  bool touches(unsigned bit) const { return (pass_.touches & bit) != 0; }
  // Which of a graph's ports the pass must keep.
  bool is_kept(const Output& o) const { return !touches(o.kind == OutputKind::state ? kTouchesState : kTouchesPorts); }
  bool is_kept(const Input& in) const { return !touches(is_state(in.kind) ? kTouchesState : kTouchesPorts); }

  void check_rows(const StateTable& before, const StateTable& after) const {
    for (const StateSpec& s : after)
      if (const StateSpec* old = before.find(s.name); !old || *old != s)
        fail(fmt::format("expected to keep the state table, got \"{}\" {}", s.name, old ? "changed" : "added"));
  }

  void check(const Graph& before, const Graph& after) const {
    if (before.name != after.name)
      fail(fmt::format("expected to keep the graph \"{}\", got \"{}\" in its place", before.name, after.name));
    if (!touches(kTouchesGraphs) && !touches(kTouchesOrder)) verify_order(before, after, pass_.name, made_by_);
    std::vector<const Output*> old, now;
    for (const Output& o : before.outputs)
      if (is_kept(o)) old.push_back(&o);
    for (const Output& o : after.outputs)
      if (is_kept(o)) now.push_back(&o);
    for (size_t i = 0; i < old.size(); ++i) {
      const Output& o = *old[i];
      if (i >= now.size() || now[i]->name != o.name || now[i]->kind != o.kind ||
          after.type(now[i]->value) != before.type(o.value))
        fail(fmt::format(
            "graph \"{}\": expected to keep its outputs, got {} of {} with \"{}\" lost, moved or of another "
            "type",
            before.name, now.size(), old.size(), o.name));
    }
    if (now.size() > old.size())
      fail(fmt::format("graph \"{}\": expected to keep its outputs, got a new one named \"{}\"", before.name,
                       now[old.size()]->name));
    size_t at = 0;
    for (const Input& in : after.inputs) {
      if (!is_kept(in)) continue;
      const auto same = [&](const Input& was) {
        return was.name == in.name && was.kind == in.kind && before.type(was.value) == after.type(in.value);
      };
      while (at < before.inputs.size() && !same(before.inputs[at])) ++at;
      if (at++ == before.inputs.size())
        fail(
            fmt::format("graph \"{}\": expected inputs of before in their order, got \"{}\", new, moved or of another "
                        "type",
                        before.name, in.name));
    }
  }

  const PassEntry& pass_;
  MadeBy made_by_;
};

// Equal for training graphs that are the same but for shapes: a step and that of its tail batch. 0: no training graph.
uint64_t step_hash(const Graph& g) {
  if (!is_training(g)) return 0;
  uint64_t h = g.nodes.size();
  for (const Node& n : g.nodes) h = hash_combine(h, reinterpret_cast<uintptr_t>(n.op));
  for (const Output& o : g.outputs)
    h = hash_combine(hash_combine(h, std::hash<std::string>{}(o.name)), static_cast<uint64_t>(o.kind));
  return h;
}

// Inputs, outputs and ordered nodes: PortCheck asks for no more, and a copy of every graph would be most of a pass's
// time.
Graph ports_of(const Graph& g) {
  Graph out;
  out.name = g.name;
  for (const Input& in : g.inputs) out.inputs.push_back({out.add_value(g.type(in.value)), in.kind, in.name});
  for (const Output& o : g.outputs) out.outputs.push_back({out.add_value(g.type(o.value)), o.kind, o.name, -1});
  for (const Node& n : g.nodes)
    if (n.op->has(kOrdered)) out.nodes.push_back({n.op, n.params, {}, {}, n.origin, n.role});
  return out;
}

StepSet ports_of(const StepSet& s) {
  StepSet out;
  out.state = s.state;
  for (const Graph& g : s.graphs) out.graphs.push_back(ports_of(g));
  return out;
}

bool have_same_ports(const Graph& a, const Graph& b) {
  const auto same_input = [&](const Input& x, const Input& y) {
    return x.kind == y.kind && x.name == y.name && a.type(x.value) == b.type(y.value);
  };
  const auto same_output = [&](const Output& x, const Output& y) {
    return x.kind == y.kind && x.name == y.name && a.type(x.value) == b.type(y.value);
  };
  return a.name == b.name && std::ranges::equal(a.inputs, b.inputs, same_input) &&
         std::ranges::equal(a.outputs, b.outputs, same_output);
}

// What a pass left is as its ports were: there is nothing that PortCheck could find.
bool have_same_ports(const StepSet& ports, const StepSet& now) {
  const auto is_ordered = [](const Node& n) { return n.op->has(kOrdered); };
  return ports.state == now.state &&
         std::ranges::none_of(now.graphs, [&](const Graph& g) { return std::ranges::any_of(g.nodes, is_ordered); }) &&
         std::ranges::none_of(ports.graphs, [](const Graph& g) { return !g.nodes.empty(); }) &&
         std::ranges::equal(ports.graphs, now.graphs,
                            [](const Graph& a, const Graph& b) { return have_same_ports(a, b); });
}

// Roles decide what techniques and `precision` do with a node; once gradients are lowered they have done their work.
void check_roles(const StepSet& set) {
  for (const Graph& g : set.graphs) {
    std::vector<bool> shown(g.types.size(), false);
    for (const Node& n : g.nodes) {
      for (const ValueId v : n.inputs)
        LATHE_USER_CHECK(
            n.role == Role::metric || !shown[static_cast<size_t>(v)],
            "graph \"{}\": {} (\"{}\") of the {} reads a value of a metric; expected metrics to be shown alone", g.name,
            n.op->name(), n.origin, to_string(n.role));
      for (const ValueId v : n.outputs) shown[static_cast<size_t>(v)] = n.role == Role::metric;
    }
  }
}

void check_marks(const StepSet& set) {
  for (const Graph& g : set.graphs)
    for (const Node& n : g.nodes) {
      if (n.op != &gradient_op) continue;
      const std::string& of = n.get<GradientParams>().of;
      const StateSpec* row = set.state.find(of);
      LATHE_USER_CHECK(row && row->kind == InputKind::param,
                       "graph \"{}\": a gradient is marked as that of \"{}\"; expected the name of a parameter of the "
                       "state table",
                       g.name, of);
    }
}

void check_rows(const StepSet& set) {
  std::vector<uint8_t> used(set.state.size());
  for (const Graph& g : set.graphs) {
    std::vector<bool> read(g.types.size(), false);
    for (const Node& n : g.nodes)
      for (const ValueId v : n.inputs) read[static_cast<size_t>(v)] = true;
    for (const Output& o : g.outputs)
      for (const ValueId v : {o.value, o.updates})
        if (v >= 0) read[static_cast<size_t>(v)] = true;
    for (const Input& in : g.inputs)
      if (const StateSpec* s = set.state.find(in.name); s && read[static_cast<size_t>(in.value)])
        used[static_cast<size_t>(s - &set.state[0])] = 1;
  }
  for (size_t row = 0; row < used.size(); ++row)
    LATHE_USER_CHECK(used[row], "state \"{}\": expected a graph that reads or writes it, got none",
                     set.state[row].name);
}

}  // namespace

uint64_t identity_hash(const StepSet& s) {
  std::vector<uint64_t> hashes(s.graphs.size());
  for_each_graph(s.graphs, [&](size_t i) { hashes[i] = identity_hash(s.graphs[i]); });
  uint64_t h = s.state.size();
  for (uint64_t of_graph : hashes) h = hash_combine(h, of_graph);
  return h;
}

void check_input(const StepSet& set) {
  verify(set, Level::tensor, "none (the input of the pipeline)", MadeBy::caller);
  check_roles(set);
}

void check_step_set(const StepSet& set) {
  check_input(set);
  check_marks(set);
  check_rows(set);
}

struct PassChecks::Facts {
  struct Step {               // a training graph
    std::string graph;        // its name
    uint64_t hash, identity;  // step_hash, identity_hash
  };

  StepSet ports;  // of the set, if known
  bool known = false;
  std::vector<Step> steps;
  std::vector<unsigned> roles;
};

PassChecks::PassChecks() : facts_(std::make_unique<Facts>()) {}
PassChecks::~PassChecks() = default;

void PassChecks::before(const PassEntry& pass, const StepSet& set) {
  if (!facts_->known) facts_->ports = ports_of(set);
  facts_->roles = pass.touches & kTouchesGraphs ? std::vector<unsigned>() : roles_of(set);
  auto& steps = facts_->steps;
  steps.clear();
  if (pass.promise == Promise::preserves && pass.touches == kTouchesNothing) return;
  for (const Graph& g : set.graphs)
    if (const uint64_t step = step_hash(g)) steps.push_back({g.name, step, 0});
  if (steps.size() == 1) steps.clear();
  for (Facts::Step& s : steps) s.identity = identity_hash(*set.find_graph(s.graph));
}

void PassChecks::after(const PassEntry& pass, const StepSet& set, MadeBy made_by) {
  // First of all: nothing else can look at a graph with values that do not exist.
  verify(set, pass.level, pass.name, made_by);
  const PortCheck ports(pass, made_by);
  facts_->known = have_same_ports(facts_->ports, set);
  if (!facts_->known) ports.check(facts_->ports, set);
  check_alike(set, [&](const std::string& what) { ports.fail(what); });
  ports.check_roles(facts_->roles, set);
}

// A pass that changes numbers or ports does so in all steps that are the same but for shapes, or in none.
void PassChecks::check_alike(const StepSet& after, const std::function<void(const std::string&)>& fail) const {
  std::map<uint64_t, std::string> treated, left;  // graphs by Step::hash
  for (const Facts::Step& s : facts_->steps) {
    const Graph* now = after.find_graph(s.graph);
    (now && identity_hash(*now) == s.identity ? left : treated).emplace(s.hash, s.graph);
  }
  for (const auto& [hash, graph] : left)
    if (const auto other = treated.find(hash); other != treated.end())
      fail(fmt::format("expected all training graphs to be treated alike, got \"{}\" changed and \"{}\" not",
                       other->second, graph));
}

void PassChecks::forget() { facts_->known = false; }

}  // namespace lathe
