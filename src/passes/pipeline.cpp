// The pipeline: read it aloud. And the driver, which does for every pass what no pass does itself: skip, verify, time.
#include <algorithm>
#include <limits>

#include "base/did_you_mean.h"
#include "base/stopwatch.h"
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
#include "passes/techniques/accumulate.h"
#include "passes/techniques/average.h"
#include "passes/techniques/clip_norm.h"
#include "passes/techniques/clip_value.h"
#include "passes/techniques/gate.h"
#include "passes/techniques/lookahead.h"
#include "passes/techniques/loss_scale.h"
#include "passes/techniques/sam.h"

namespace lathe {
namespace {

// Level::lowered also demands state reads before state writes, which is the schedule's to arrange: the plan checks it.
constexpr PassEntry kPipeline[] = {
    // Techniques: what they do to a step is part of it from here on; `grad` is still one node.
    {"sam", sam, Level::tensor, false, kTouchesNothing, Promise::changes,
     [](PassOptions& o) { o.set(SamOptions{1e-30}); }},
    // All others see the graph in which gradients meet parameters.
    {"accumulate", accumulate, Level::tensor, true, kTouchesState | kTouchesPorts | kTouchesGraphs},
    {"clip_value", clip_value, Level::tensor, false, kTouchesNothing, Promise::changes,
     [](PassOptions& o) { o.set(ClipValueOptions{std::numeric_limits<double>::infinity()}); }},
    {"lookahead", lookahead, Level::tensor, false, kTouchesState | kTouchesPorts, Promise::changes,
     [](PassOptions& o) { o.set(LookaheadOptions{1}); }},
    {"clip_norm", clip_norm, Level::tensor, false, kTouchesNothing, Promise::changes,
     [](PassOptions& o) { o.set(ClipNormOptions{std::numeric_limits<double>::infinity()}); }},
    // Sees gradients before clip_norm, which stands behind them.
    {"gate", gate, Level::tensor, true, kTouchesPorts},
    // Reads the flag of gate.
    {"loss_scale", loss_scale, Level::tensor, false, kTouchesState | kTouchesPorts},
    // Reads what gate leaves of an update.
    {"average", average, Level::tensor, false, kTouchesState | kTouchesPorts, Promise::changes,
     [](PassOptions& o) { o.set(AverageOptions{true}); }},
    // Before autodiff, so that gradients of products are products of the same type.
    {"precision", each_graph<precision>, Level::tensor, false, kTouchesNothing, Promise::changes},
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

// What a pass must leave to those who plan and run the set: graphs with their names, the state table, the outputs in
// their order, ordered nodes in theirs. Inputs may go, none may come. What the row says is touched is left to verify.
class PortCheck {
 public:
  PortCheck(const PassEntry& pass, MadeBy made_by) : pass_(pass), made_by_(made_by) {}

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
  uint64_t h = s.state.size();
  for (const Graph& g : s.graphs) h = hash_combine(h, identity_hash(g));
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

bool is_disabled(const PipelineOptions& options, const PassEntry& pass) {
  return std::ranges::find(options.disabled, pass.name) != options.disabled.end();
}

}  // namespace

std::span<const PassEntry> pipeline() { return kPipeline; }

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
  std::vector<PassEntry> passes(std::begin(kPipeline), std::end(kPipeline));
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
      throw UserError(fmt::format("pass \"{}\" cannot be disabled: without it the graph cannot be planned", name),
                      Exit::usage);
  if (!options.stop_after.empty()) find_pass(passes, options.stop_after);
  if (options.verify) verify(set, Level::tensor, "none (the input of the pipeline)", MadeBy::caller);

  for (const PassEntry& pass : passes) {
    PassReport report{.name = std::string(pass.name)};
    if (is_disabled(options, pass)) {
      report.disabled = true;
    } else {
      const MadeBy made_by = is_added(options, pass) ? MadeBy::caller : MadeBy::lathe;
      const bool checked = options.verify || made_by == MadeBy::caller;
      const StepSet before = options.on_pass ? set : checked ? ports_of(set) : StepSet();
      const uint64_t identity = reports ? identity_hash(set) : 0;
      const Stopwatch start;
      set = pass.run(std::move(set), context);
      report.seconds = start.seconds();
      // First of all: nothing else can look at a graph with values that do not exist.
      if (checked) {
        verify(set, pass.level, pass.name, made_by);
        PortCheck(pass, made_by).check(before, set);
      }
      report.changed = reports && identity_hash(set) != identity;
      if (options.on_pass) options.on_pass(pass, before, set);
    }
    for (const Graph& g : set.graphs) report.nodes += g.nodes.size();
    if (reports) reports->push_back(std::move(report));
    if (pass.name == options.stop_after) break;
  }
  return set;
}

}  // namespace lathe
