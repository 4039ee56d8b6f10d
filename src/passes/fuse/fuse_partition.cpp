#include "passes/fuse/fuse_partition.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace lathe {
namespace {

constexpr int kSearchBudget = 400;  // edges that one search may look at

}  // namespace

FusePartition::FusePartition(const FuseGraph& f)
    : f_(f), of_(f.g.nodes.size()), groups_(f.g.nodes.size()), seen_(f.g.nodes.size(), 0) {
  std::iota(of_.begin(), of_.end(), 0);
  for (size_t i = 0; i < of_.size(); ++i) {
    if (!f.live[i]) continue;
    Group& g = groups_[i];
    g.nodes = {static_cast<int32_t>(i)};
    g.inputs = f.sources[i];
    g.min_level = g.max_level = f.level[i];
  }
}

std::vector<ValueId> FusePartition::inputs_together(const Group& a, const Group& b) const {
  std::vector<ValueId> out;
  const auto inside = [&](int32_t d) { return d >= 0 && (&of(d) == &a || &of(d) == &b); };
  for (const Group* g : {&a, &b})
    for (ValueId v : g->inputs)
      if (!inside(f_.def[at(v)]) && std::ranges::find(out, v) == out.end()) out.push_back(v);
  return out;
}

void FusePartition::absorb(int32_t a, int32_t b) {
  Group &x = (*this)[a], &y = (*this)[b];
  x.inputs = inputs_together(x, y);
  x.nodes.insert(x.nodes.end(), y.nodes.begin(), y.nodes.end());
  x.instrs += y.instrs;
  x.min_level = std::min(x.min_level, y.min_level);
  x.max_level = std::max(x.max_level, y.max_level);
  if (x.reduce < 0 && y.reduce >= 0) {
    x.reduce = y.reduce;
    x.tail = y.tail;
  }
  for (int32_t i : y.nodes) of_[at(i)] = a;
  y = {};
}

bool FusePartition::reads(int32_t reader, int32_t writer) const {
  return std::ranges::any_of((*this)[reader].inputs,
                             [&](ValueId v) { return f_.def[at(v)] >= 0 && id(f_.def[at(v)]) == writer; });
}

int32_t FusePartition::ready(const Group& g) const {
  int32_t level = 0;
  for (ValueId v : g.inputs) level = std::max(level, f_.level_of(v));
  return level;
}

std::vector<int32_t> FusePartition::successors(const Group& g, int32_t a, int32_t b) const {
  std::vector<int32_t> out;
  for (int32_t i : g.nodes)
    for (const auto* list : {&f_.readers[at(i)], &f_.writers[at(i)]})
      for (int32_t s : *list)
        if (id(s) != a && id(s) != b) out.push_back(s);
  return out;
}

// f(node) for every node that must run after the group; true from it ends the walk.
template <class F>
void FusePartition::for_each_edge(int32_t g, F&& f) const {
  for (int32_t i : (*this)[g].nodes)
    for (const auto* list : {&f_.readers[at(i)], &f_.writers[at(i)]})
      for (int32_t s : *list)
        if (id(s) != g && f(s)) return;
}

bool FusePartition::reaches(const std::vector<int32_t>& from, int32_t target, int32_t without) {
  ++search_;
  int budget = kSearchBudget;
  bool found = false;
  std::vector<int32_t> open;
  const auto visit = [&](int32_t node) {
    const int32_t g = id(node);
    if (g == target || --budget < 0) return found = true;
    // Levels rise along every edge: a group that lies wholly above the target cannot lead to it.
    if (seen_[at(g)] == search_ || g == without || (*this)[g].min_level >= (*this)[target].max_level) return false;
    seen_[at(g)] = search_;
    open.push_back(g);
    return false;
  };
  for (int32_t node : from)
    if (visit(node)) return true;
  while (!open.empty() && !found) {
    const int32_t g = open.back();
    open.pop_back();
    for_each_edge(g, visit);
  }
  return found;
}

std::vector<int32_t> FusePartition::sorted() {
  std::vector<int32_t> waits(groups_.size(), 0);
  // By the last node's place in the source.
  using Entry = std::pair<int32_t, int32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
  size_t count = 0;
  const int32_t size = static_cast<int32_t>(groups_.size());
  for (int32_t g = 0; g < size; ++g) {
    if ((*this)[g].nodes.empty()) continue;
    ++count;
    std::ranges::sort((*this)[g].nodes);
    for_each_edge(g, [&](int32_t s) {
      ++waits[at(id(s))];
      return false;
    });
  }
  for (int32_t g = 0; g < size; ++g)
    if (!(*this)[g].nodes.empty() && waits[at(g)] == 0) open.push({(*this)[g].nodes.back(), g});
  std::vector<int32_t> out;
  out.reserve(count);
  while (!open.empty()) {
    out.push_back(open.top().second);
    open.pop();
    for_each_edge(out.back(), [&](int32_t s) {
      if (--waits[at(id(s))] == 0) open.push({of(s).nodes.back(), id(s)});
      return false;
    });
  }
  LATHE_CHECK(out.size() == count, "fusing made a cycle: {} of {} groups are reachable", out.size(), count);
  return out;
}

}  // namespace lathe
