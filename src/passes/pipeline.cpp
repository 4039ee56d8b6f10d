// The pipeline: the techniques (techniques/table.h), then what makes a step fit to be planned. And the driver, which
// does for every pass what no pass does itself: skip, verify, time.
#include <algorithm>
#include <map>
#include <optional>

#include "base/did_you_mean.h"
#include "base/stopwatch.h"
#include "ops/grad.h"
#include "ops/gradient.h"
#include "passes/autodiff.h"
#include "passes/canonicalize.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/expand.h"
#include "passes/fold.h"
#include "passes/fuse/fuse.h"
#include "passes/layout.h"
#include "passes/pass.h"
#include "passes/precision.h"
#include "passes/techniques/gradients.h"
#include "passes/techniques/table.h"

namespace lathe {
namespace {

// Level::lowered also demands state reads before state writes, which is the schedule's to arrange: the plan checks it.
constexpr PassEntry kLowering[] = {
    // Before autodiff, so that gradients of products are products of the same type.
    {"precision", each_graph<precision>, Level::tensor, false, kTouchesNothing, Promise::changes,
     kOptions<PrecisionOptions>},
    {"autodiff", each_graph<autodiff>, Level::tensor, true},
    // Composites have vjps of their own, cheaper than those of their expansions.
    {"expand", each_graph<expand>, Level::tensor, true},
    // The cotangent 1 and the zeros of absent cotangents meet their readers.
    {"fold", each_graph<fold>, Level::tensor},
    {"layout", each_graph<layout>, Level::tensor},
    // Rules that ask for the constants 0 and 1, and for reshapes that layout left.
    {"canonicalize", each_graph<canonicalize>, Level::tensor},
    // Equal values have one form now.
    {"cse", each_graph<cse>, Level::tensor},
    // Dead readers would keep fuse from merging.
    {"dce", each_graph<dce>, Level::tensor},
    {"fuse", each_graph<fuse>, Level::tensor},
};

std::vector<OptionsRow>& registered() {
  static std::vector<OptionsRow> all;
  return all;
}

const PassEntry& find_pass(std::span<const PassEntry> passes, std::string_view name) {
  std::vector<std::string_view> names;
  for (const PassEntry& p : passes) {
    if (p.name == name) return p;
    names.push_back(p.name);
  }
  const auto near = did_you_mean(name, names);
  throw UserError(fmt::format("no pass is named \"{}\"; {}known: {}", name,
                              near ? fmt::format("did you mean \"{}\"? ", *near) : "", fmt::join(names, ", ")),
                  Exit::usage);
}

bool is_added(const PipelineOptions& options, const PassEntry& pass) {
  return std::ranges::any_of(options.added, [&](const AddedPass& a) { return a.pass.name == pass.name; });
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

  // A pass that touches nothing may not make a training graph forget what its nodes are for.
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
    if (touches(kTouchesGraphs)) return;
    if (before.graphs.size() != after.graphs.size())
      fail(fmt::format("expected to keep the {} graphs, got {}", before.graphs.size(), after.graphs.size()));
    for (size_t i = 0; i < before.graphs.size(); ++i) check(before.graphs[i], after.graphs[i]);
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
    verify_order(before, after, pass_.name, made_by_);
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

  [[noreturn]] void fail(const std::string& what) const {
    const std::string text = fmt::format("pass {}: {}{}", pass_.name, what,
                                         pass_.touches == kTouchesNothing ? "" : " (its row says what it may touch)");
    if (made_by_ == MadeBy::caller) throw UserError(text);
    throw InternalError(text);
  }

  const PassEntry& pass_;
  MadeBy made_by_;
};

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

uint64_t identity_hash(const StepSet& s) {
  std::vector<uint64_t> hashes(s.graphs.size());
  for_each_graph(s.graphs, [&](size_t i) { hashes[i] = identity_hash(s.graphs[i]); });
  uint64_t h = s.state.size();
  for (uint64_t of_graph : hashes) h = hash_combine(h, of_graph);
  return h;
}

// Equal for training graphs that are the same but for shapes: a step and that of its tail batch. 0: no training graph.
uint64_t step_hash(const Graph& g) {
  if (!is_training(g)) return 0;
  uint64_t h = g.nodes.size();
  for (const Node& n : g.nodes) h = hash_combine(h, reinterpret_cast<uintptr_t>(n.op));
  for (const Output& o : g.outputs)
    h = hash_combine(hash_combine(h, std::hash<std::string>{}(o.name)), static_cast<uint64_t>(o.kind));
  return h;
}

// A pass that changes numbers or ports does so in all steps that are the same but for shapes, or in none.
class AlikeCheck {
 public:
  AlikeCheck(const PassEntry& pass, const StepSet& before) : pass_(pass) {
    if ((pass.promise == Promise::preserves && pass.touches == kTouchesNothing) || (pass.touches & kTouchesGraphs))
      return;
    for (size_t i = 0; i < before.graphs.size(); ++i)
      if (const uint64_t step = step_hash(before.graphs[i])) steps_.push_back({i, step, 0});
    if (steps_.size() == 1) steps_.clear();
    for (Step& s : steps_) s.identity = identity_hash(before.graphs[s.graph]);
  }

  void check(const StepSet& after, MadeBy made_by) const {
    std::map<uint64_t, const Step*> treated, left;  // by Step::hash
    for (const Step& s : steps_)
      (identity_hash(after.graphs[s.graph]) == s.identity ? left : treated).emplace(s.hash, &s);
    for (const auto& [hash, s] : left) {
      const auto other = treated.find(hash);
      if (other == treated.end()) continue;
      const std::string text =
          fmt::format("pass {}: expected all training graphs to be treated alike, got \"{}\" changed and \"{}\" not",
                      pass_.name, after.graphs[other->second->graph].name, after.graphs[s->graph].name);
      if (made_by == MadeBy::caller) throw UserError(text);
      throw InternalError(text);
    }
  }

 private:
  struct Step {
    size_t graph;
    uint64_t hash, identity;
  };
  const PassEntry& pass_;
  std::vector<Step> steps_;
};

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

struct Refusal : RuleReport {  // The first broken rule is an error.
  void report(std::span<const std::string_view> keys, const std::string& message) override {
    throw UserError(fmt::format("{}: {}", keys[0], message));
  }
};

// Options that a program set are held to what their fields and rules say, as those of recipes are.
void check_options(std::span<const PassEntry> passes, const PassOptions& options) {
  Refusal refusal;
  for (const PassEntry& pass : passes) {
    if (!pass.options.schema) continue;
    const Schema& schema = pass.options.schema();
    for (const Field& f : schema.fields) {
      const FieldPtr at = options.at(schema, f);
      if (const auto bad = check_value(at, f.allowed))
        throw UserError(
            fmt::format("pass {}: {}: expected {}, got {}", pass.name, f.name, allowed_text(at, f.allowed), bad->got));
    }
    if (pass.options.check) pass.options.check(options, refusal);
  }
}

// It has nothing to do: what it would return is what it would get.
bool is_off(const PassEntry& pass, const PassOptions& options) {
  return pass.options.is_on && !pass.options.is_on(options);
}

bool is_disabled(const PipelineOptions& options, const PassEntry& pass) {
  return std::ranges::find(options.disabled, pass.name) != options.disabled.end();
}

}  // namespace

std::span<const PassEntry> pipeline() {
  static const std::vector<PassEntry> all = [] {
    std::vector<PassEntry> rows(std::begin(kTechniques), std::end(kTechniques));
    rows.insert(rows.end(), std::begin(kLowering), std::end(kLowering));
    return rows;
  }();
  return all;
}

std::vector<OptionsRow> pass_options() {
  std::vector<OptionsRow> out;
  for (const PassEntry& pass : pipeline())
    if (pass.options.schema) out.push_back(pass.options);
  out.insert(out.end(), registered().begin(), registered().end());
  return out;
}

void register_options(const OptionsRow& row) {
  LATHE_USER_CHECK(row.schema, "options need a struct with fields");
  if (std::ranges::find(registered(), row.schema, &OptionsRow::schema) == registered().end())
    registered().push_back(row);
}

StepSet run_pipeline(StepSet set, const PassContext& context, const PipelineOptions& options,
                     std::vector<PassReport>* reports) {
  return run_passes(pipeline_with(options), std::move(set), context, options, reports);
}

Graph run_pipeline(Graph g, const PassContext& context, const PipelineOptions& options,
                   std::vector<PassReport>* reports) {
  StepSet set = run_pipeline(set_of(std::move(g)), context, options, reports);
  LATHE_CHECK(set.graphs.size() == 1, "a graph became {}", set.graphs.size());
  return std::move(set.graphs[0]);
}

std::vector<PassEntry> pipeline_with(const PipelineOptions& options) {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  for (const AddedPass& a : options.added) {
    LATHE_USER_CHECK(!a.pass.name.empty() && a.pass.run, "an added pass needs a name and a function");
    LATHE_USER_CHECK(std::ranges::find(passes, a.pass.name, &PassEntry::name) == passes.end(),
                     "pass \"{}\": the name is taken", a.pass.name);
    const auto at = a.after.empty() ? 0 : &find_pass(passes, a.after) - passes.data() + 1;
    passes.insert(passes.begin() + at, a.pass);
  }
  return passes;
}

std::vector<std::string> pipeline_changes(const PipelineOptions& options) {
  std::vector<std::string> out = options.disabled;
  for (const AddedPass& a : options.added) out.push_back("+" + std::string(a.pass.name));
  std::ranges::sort(out);
  return out;
}

StepSet run_passes(std::span<const PassEntry> passes, StepSet set, const PassContext& context,
                   const PipelineOptions& options, std::vector<PassReport>* reports) {
  for (const std::string& name : options.disabled)
    if (find_pass(passes, name).required)
      throw UserError(fmt::format("pass \"{}\" cannot be disabled: the plan or the loop relies on what it does", name),
                      Exit::usage);
  if (!options.stop_after.empty()) find_pass(passes, options.stop_after);
  check_options(passes, context.options);
  if (options.verify) {
    verify(set, Level::tensor, "none (the input of the pipeline)", MadeBy::caller);
    check_roles(set);
  }

  StepSet ports;  // of the set, if known
  bool known = false;
  uint64_t identity = reports ? identity_hash(set) : 0;
  for (const PassEntry& pass : passes) {
    PassReport report{.name = std::string(pass.name)};
    if (is_disabled(options, pass)) {
      report.disabled = true;
    } else if (is_off(pass, context.options)) {
      if (options.on_pass) options.on_pass(pass, set, set);
    } else {
      const MadeBy made_by = is_added(options, pass) ? MadeBy::caller : MadeBy::lathe;
      const bool checked = options.verify || made_by == MadeBy::caller;
      const StepSet before = options.on_pass ? set : StepSet();
      if (checked && !known) ports = ports_of(set);
      if (pass.options.is_on) check_marked(set, pass.name);
      std::optional<AlikeCheck> alike;
      std::vector<unsigned> roles;
      if (checked) {
        alike.emplace(pass, set);
        if (pass.touches == kTouchesNothing) roles = roles_of(set);
      }
      const Stopwatch start;
      set = pass.run(std::move(set), context);
      report.seconds = start.seconds();
      // First of all: nothing else can look at a graph with values that do not exist.
      if (checked) {
        verify(set, pass.level, pass.name, made_by);
        known = have_same_ports(ports, set);
        if (!known) PortCheck(pass, made_by).check(ports, set);
        alike->check(set, made_by);
        PortCheck(pass, made_by).check_roles(roles, set);
      } else {
        known = false;
      }
      if (reports) {
        const uint64_t now = identity_hash(set);
        report.changed = now != identity;
        identity = now;
      }
      if (options.on_pass) options.on_pass(pass, before, set);
    }
    for (const Graph& g : set.graphs) report.nodes += g.nodes.size();
    if (reports) reports->push_back(std::move(report));
    if (pass.name == options.stop_after) break;
  }
  return set;
}

}  // namespace lathe
