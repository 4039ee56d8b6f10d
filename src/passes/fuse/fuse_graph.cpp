#include "passes/fuse/fuse_graph.h"

#include <algorithm>

#include "ops/broadcast.h"
#include "ops/full.h"

namespace lathe {
namespace {

void insert_unique(ValueIds& list, ValueId v) {
  if (std::ranges::find(list, v) == list.end()) list.push_back(v);
}

}  // namespace

FuseGraph::FuseGraph(const Graph& graph)
    : g(graph),
      def(definitions(graph)),
      is_output(graph.types.size(), false),
      updates(graph.types.size(), -1),
      transparent(graph.nodes.size(), false),
      live(graph.nodes.size(), false),
      sources(graph.nodes.size()),
      readers(graph.nodes.size()),
      writers(graph.nodes.size()),
      level(graph.nodes.size(), 0) {
  for (const Output& o : g.outputs) {
    is_output[at(o.value)] = true;
    if (o.updates >= 0) updates[at(o.value)] = o.updates;
  }
  find_sources();
  find_writers();
  keep_order();
  if (!find_levels()) {
    // The plan will copy such state; any order is right then.
    for (auto& list : writers) list.clear();
    keep_order();
    LATHE_CHECK(find_levels(), "the graph is not acyclic");
  }
}

bool FuseGraph::makes_output(int32_t i) const {
  return std::ranges::any_of(node(i).outputs, [&](ValueId v) { return is_output[at(v)]; });
}

int32_t FuseGraph::level_of(ValueId v) const { return def[at(v)] < 0 ? 0 : level[at(def[at(v)])]; }

void FuseGraph::find_sources() {
  // Behind broadcasts: the value that is read in the end, or -1 for a constant.
  std::vector<ValueId> behind(g.types.size());
  for (size_t v = 0; v < behind.size(); ++v) behind[v] = static_cast<ValueId>(v);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    transparent[i] = n.op == &full_op || n.op == &broadcast_op;
    if (transparent[i]) behind[at(n.outputs[0])] = n.inputs.empty() ? -1 : behind[at(n.inputs[0])];
  }
  std::vector<bool> needed(g.types.size(), false);
  const auto need = [&](ValueId v) {
    if (behind[at(v)] >= 0) needed[at(behind[at(v)])] = true;
  };
  for (const Output& o : g.outputs) {
    need(o.value);
    // An output that repeats a value is written from it after the groups: the value must be there.
    if (behind[at(o.value)] >= 0) is_output[at(behind[at(o.value)])] = true;
  }
  for (size_t i = g.nodes.size(); i-- > 0;) {
    const Node& n = g.nodes[i];
    if (transparent[i]) continue;
    live[i] = n.op->has(kOrdered) || std::ranges::any_of(n.outputs, [&](ValueId v) { return needed[at(v)]; });
    if (!live[i]) continue;
    for (ValueId v : n.inputs) {
      need(v);
      if (behind[at(v)] >= 0) insert_unique(sources[i], behind[at(v)]);
    }
  }
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (ValueId v : sources[i])
      if (const int32_t d = def[at(v)]; d >= 0)
        if (readers[at(d)].empty() || readers[at(d)].back() != static_cast<int32_t>(i))
          readers[at(d)].push_back(static_cast<int32_t>(i));
}

void FuseGraph::inline_node(int32_t i) {
  LATHE_CHECK(live[at(i)] && writers[at(i)].empty() && !makes_output(i));
  const ValueId y = node(i).outputs[0];
  for (int32_t r : readers[at(i)]) {
    auto& list = sources[at(r)];
    list.erase(y);
    for (ValueId v : sources[at(i)]) insert_unique(list, v);
  }
  for (ValueId v : sources[at(i)]) {
    if (def[at(v)] < 0) continue;
    auto& list = readers[at(def[at(v)])];
    list.erase(i);
    list.append(readers[at(i)]);
    std::ranges::sort(list);
    list.truncate(static_cast<size_t>(std::unique(list.begin(), list.end()) - list.begin()));
  }
  transparent[at(i)] = true;
  live[at(i)] = false;
  readers[at(i)].clear();
}

void FuseGraph::find_writers() {
  std::vector<int32_t> writer(g.types.size(), -1);  // by value that is state or a view of state
  for (const Output& o : g.outputs)
    if (o.updates >= 0 && o.value != o.updates && def[at(o.value)] >= 0 && live[at(def[at(o.value)])])
      writer[at(o.updates)] = def[at(o.value)];
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (!live[i]) continue;
    for (ValueId v : sources[i]) {
      const int32_t w = writer[at(v)];
      if (w < 0 || w == static_cast<int32_t>(i)) continue;
      writers[i].push_back(w);
      if (g.nodes[i].op->has(kView)) writer[at(g.nodes[i].outputs[0])] = w;
    }
  }
}

void FuseGraph::keep_order() {
  int32_t last = -1;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    if (!g.nodes[i].op->has(kOrdered)) continue;
    if (last >= 0) writers[at(last)].push_back(static_cast<int32_t>(i));
    last = static_cast<int32_t>(i);
  }
}

bool FuseGraph::find_levels() {
  std::vector<int32_t> waits(g.nodes.size(), 0), ready;
  std::ranges::fill(level, 1);
  for (size_t i = 0; i < g.nodes.size(); ++i)
    for (const auto* list : {&readers[i], &writers[i]})
      for (int32_t r : *list) ++waits[at(r)];
  size_t count = 0, done = 0;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    count += live[i];
    if (live[i] && waits[i] == 0) ready.push_back(static_cast<int32_t>(i));
  }
  while (!ready.empty()) {
    const int32_t i = ready.back();
    ready.pop_back();
    ++done;
    for (const auto* list : {&readers[at(i)], &writers[at(i)]})
      for (int32_t r : *list) {
        level[at(r)] = std::max(level[at(r)], level[at(i)] + 1);
        if (--waits[at(r)] == 0) ready.push_back(r);
      }
  }
  return done == count;
}

}  // namespace lathe
