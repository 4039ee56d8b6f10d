#include "plan/plan.h"

#include <algorithm>

#include "base/format_bytes.h"
#include "ir/step_set.h"
#include "ir/verify.h"
#include "plan/budget.h"
#include "plan/lanes.h"

namespace lathe {
namespace {

int64_t available_bytes(const Target& target, const PlanOptions& options) {
  return options.budget > 0 ? std::min(options.budget, target.memory) : target.memory;
}

bool has_lanes(const Drafts& all) {
  return std::ranges::any_of(all.choices, [](const std::vector<Choice>& choices) {
    return std::ranges::any_of(choices, [](const Choice& c) { return c.candidate.lane != Lane::compute; });
  });
}

[[noreturn]] void refuse(const ProgramSet& set, const Arena& arena, const Target& target, int64_t available,
                         int64_t smallest) {
  size_t worst = 0;
  for (size_t i = 0; i < set.programs.size(); ++i)
    if (set.programs[i].memory.total > set.programs[worst].memory.total) worst = i;
  const MemoryReport& m = set.programs[worst].memory;
  std::vector<std::string> classes;
  for (MemoryClass c : kMemoryClasses)
    if (m.of(c) > 0) classes.push_back(fmt::format("{} {}", to_string(c), format_bytes(m.of(c))));
  throw BudgetError(
      fmt::format("plan: {} bytes ({}) are needed on {}, {} ({}) are available{}; \"{}\" at its peak: {}; largest: {}",
                  set.arena_bytes, format_bytes(set.arena_bytes), target.name, available, format_bytes(available),
                  smallest < set.arena_bytes ? fmt::format(", and with recompute no less than {} ({}) will do",
                                                           smallest, format_bytes(smallest))
                                             : "",
                  set.programs[worst].name, fmt::join(classes, ", "), fmt::join(arena.largest(worst, 5), "; ")),
      smallest);
}

// `p` has its name and its memory report.
void build_program(size_t index, Drafts& all, const Arena& arena, Program& p) {
  Draft& d = all.drafts[index];
  p.expanded = std::move(all.expanded[index]);
  const Graph& g = d.graph;
  const auto place = [&](ValueId v) { return arena.value(index, v); };
  for (const Input& in : g.inputs)
    p.inputs.push_back(
        {.name = in.name, .type = g.type(in.value), .kind = in.kind, .output_kind = {}, .buffer = place(in.value)});
  for (size_t i = 0; i < g.outputs.size(); ++i) {
    const Output& o = g.outputs[i];
    Port port{.name = o.name, .type = g.type(o.value), .kind = {}, .output_kind = o.kind, .buffer = {}};
    // State is read where it lives, whatever way its new value got there.
    if (o.updates >= 0)
      port.buffer = place(o.updates);
    else if (const int32_t s = d.storage.saved[i]; s >= 0)
      port.buffer = arena.slot(index, s);
    else
      port.buffer = place(o.value);
    p.outputs.push_back(std::move(port));
  }
  for (int32_t node : d.order) {
    const Node& n = g.nodes[static_cast<size_t>(node)];
    if (n.op->has(kView)) continue;
    Choice& choice = all.choices[index][static_cast<size_t>(node)];
    Launch l{n,         g.types_of(n.inputs),      g.types_of(n.outputs), choice.candidate, {},
             g.cost(n), std::move(choice.declined)};
    LATHE_CHECK(all.again[index].empty() || !all.again[index][static_cast<size_t>(node)] || !n.op->has(kOrdered),
                "{} would run again", n.op->name());
    l.again = !all.again[index].empty() && all.again[index][static_cast<size_t>(node)];
    l.lane = l.candidate.lane;
    for (ValueId v : n.outputs) l.args.out.push_back(place(v));
    for (ValueId v : n.inputs) l.args.in.push_back(place(v));
    if (const int32_t s = d.storage.workspace[static_cast<size_t>(node)]; s >= 0)
      l.args.workspace = arena.slot(index, s);
    p.launches.push_back(std::move(l));
  }
  for (const EndCopy& c : d.storage.copies)
    p.final_copies.push_back({c.to >= 0 ? place(c.to) : arena.slot(index, c.to_slot),
                              c.from_slot >= 0 ? arena.slot(index, c.from_slot) : place(c.from)});
  place_waits(p);
  p.graph = std::move(d.graph);
  std::vector<Node> nodes;
  nodes.reserve(p.graph.nodes.size());
  for (int32_t node : d.order) nodes.push_back(std::move(p.graph.nodes[static_cast<size_t>(node)]));
  p.graph.nodes = std::move(nodes);
}

}  // namespace

ProgramSet plan(std::vector<Graph> graphs, const Target& target, const KernelTable& table, const PlanOptions& options) {
  Drafts all = make_drafts(graphs, target, table, options);
  const int64_t available = available_bytes(target, options);
  int64_t smallest = 0;
  if (options.budget > 0 && options.in_flight > 0 && has_lanes(all) && arena_bytes(all.drafts, target) > available) {
    PlanOptions tight = options;
    tight.in_flight = 0;
    all = make_drafts(graphs, target, table, tight);
  }
  if (options.budget > 0 && arena_bytes(all.drafts, target) > available) {
    BudgetFitter fitter(all, target);
    if (auto fitting = fitter.fit(available))
      all = std::move(*fitting);
    else
      smallest = fitter.smallest();
  }
  const Arena arena(all.drafts, target);
  ProgramSet set;
  set.state = arena.state();
  set.segments = arena.segments();
  for (int64_t bytes : set.segments) set.arena_bytes += bytes;
  for (size_t i = 0; i < all.drafts.size(); ++i) {
    Program p;
    p.name = all.drafts[i].graph.name;
    p.memory = arena.report(i);
    int64_t communication = 0;
    for (const Choice& c : all.choices[i]) communication = std::max(communication, c.communication);
    p.memory.by_class[static_cast<size_t>(MemoryClass::communication)] = communication;
    p.memory.total += communication;
    set.communication_bytes = std::max(set.communication_bytes, communication);
    set.programs.push_back(std::move(p));
  }
  if (set.arena_bytes > available) refuse(set, arena, target, available, smallest > 0 ? smallest : set.arena_bytes);
  for_each_graph(graphs, [&](size_t i) {
    build_program(i, all, arena, set.programs[i]);
    verify(set.programs[i].graph, all.readers_first[i] ? Level::lowered : Level::tensor, "plan");
    verify_order(graphs[i], set.programs[i].graph, "plan");
  });
  return set;
}

}  // namespace lathe
