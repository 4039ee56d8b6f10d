#include "passes/fuse/fuse_partition.h"

#include <algorithm>
#include <numeric>
#include <queue>

namespace lathe {
namespace {

constexpr int kSearchBudget = 400;               // edges that one search may look at
constexpr uint64_t kPlaces = uint64_t{1} << 63;  // numbers of places in the order are below

}  // namespace

FusePartition::FusePartition(const FuseGraph& f)
    : f_(f),
      of_(f.g.nodes.size()),
      groups_(f.g.nodes.size()),
      seen_(f.g.nodes.size(), 0),
      next_(f.g.nodes.size() + 1),
      previous_(f.g.nodes.size() + 1),
      place_(f.g.nodes.size() + 1),
      head_(static_cast<int32_t>(f.g.nodes.size())) {
  std::iota(of_.begin(), of_.end(), 0);
  for (size_t i = 0; i < of_.size(); ++i) {
    if (!f.live[i]) continue;
    Group& g = groups_[i];
    g.nodes = {static_cast<int32_t>(i)};
    g.inputs = f.sources[i];
  }
  // Levels rise along every edge between nodes.
  std::vector<int32_t> order = of_;
  std::ranges::stable_sort(order, {}, [&](int32_t i) { return f.level[at(i)]; });
  int32_t last = head_;
  for (int32_t i : order) {
    next_[at(last)] = i;
    previous_[at(i)] = last;
    last = i;
  }
  next_[at(last)] = head_;
  previous_[at(head_)] = last;
  renumber();
}

ValueIds FusePartition::inputs_together(const Group& a, const Group& b) const {
  ValueIds out;
  const auto inside = [&](int32_t d) { return d >= 0 && (&of(d) == &a || &of(d) == &b); };
  for (const Group* g : {&a, &b})
    for (ValueId v : g->inputs)
      if (!inside(f_.def[at(v)]) && std::ranges::find(out, v) == out.end()) out.push_back(v);
  return out;
}

void FusePartition::absorb(int32_t a, int32_t b) {
  Group &x = (*this)[a], &y = (*this)[b];
  x.inputs = inputs_together(x, y);
  x.nodes.append(y.nodes);
  x.instrs += y.instrs;
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

// f(node) for every node that must run after the group; true from it ends the walk.
template <class F>
void FusePartition::for_each_edge(int32_t g, F&& f) const {
  for (int32_t i : (*this)[g].nodes)
    for (const auto* list : {&f_.readers[at(i)], &f_.writers[at(i)]})
      for (int32_t s : *list)
        if (id(s) != g && f(s)) return;
}

// Edges go up in the order, so a path between the groups stays below the last of them. The merged group takes the place
// of the last; the successors that were found below move behind it, and nothing else moves. All edges still go up:
// - into the merged group: a predecessor stood before one of the groups and did not move; that it moves would mean that
//   a path comes back;
// - out of it: a successor moved, or stood behind the last group;
// - into what moved: a predecessor stood before it, and stays or moves along in the same order;
// - out of what moved: a successor moved along, or stood behind the last group.
bool FusePartition::merge(std::initializer_list<int32_t> ids) {
  const int32_t first = *ids.begin();
  const int32_t last = *std::ranges::max_element(ids, {}, [&](int32_t g) { return place_[at(g)]; });
  if (!find_behind(ids, last)) return false;
  std::ranges::sort(behind_, {}, [&](int32_t g) { return place_[at(g)]; });
  if (first != last) behind_.insert(behind_.begin(), first);
  move_behind(last, behind_);
  for (int32_t g : ids)
    if (g != first) absorb(first, g);
  return true;
}

// Fills behind_: the groups before `last` that must run after one of `ids`. False where one of `ids` is among them.
bool FusePartition::find_behind(std::initializer_list<int32_t> ids, int32_t last) {
  ++search_;
  behind_.clear();
  int budget = kSearchBudget;
  bool refused = false;
  const auto is_one = [&](int32_t g) { return std::ranges::find(ids, g) != ids.end(); };
  const auto look_behind = [&](int32_t from) {
    const bool leaves = is_one(from);
    for_each_edge(from, [&](int32_t node) {
      const int32_t g = id(node);
      if (is_one(g)) return refused = !leaves;
      if (--budget < 0) return refused = true;
      if (seen_[at(g)] == search_ || place_[at(g)] > place_[at(last)]) return false;
      seen_[at(g)] = search_;
      behind_.push_back(g);
      return false;
    });
  };
  for (int32_t g : ids)
    if (g != last && !refused) look_behind(g);
  for (size_t i = 0; i < behind_.size() && !refused; ++i) look_behind(behind_[i]);
  return !refused;
}

void FusePartition::move_behind(int32_t group, std::span<const int32_t> moved) {
  for (int32_t g : moved) {
    next_[at(previous_[at(g)])] = next_[at(g)];
    previous_[at(next_[at(g)])] = previous_[at(g)];
  }
  const int32_t end = next_[at(group)];
  int32_t last = group;
  for (int32_t g : moved) {
    next_[at(last)] = g;
    previous_[at(g)] = last;
    last = g;
  }
  next_[at(last)] = end;
  previous_[at(end)] = last;
  const uint64_t room = (end == head_ ? kPlaces : place_[at(end)]) - place_[at(group)];
  const uint64_t step = room / (moved.size() + 1);
  if (step == 0) return renumber();
  for (int32_t g : moved) place_[at(g)] = place_[at(previous_[at(g)])] + step;
}

void FusePartition::renumber() {
  const uint64_t step = kPlaces / (place_.size() + 1);
  place_[at(head_)] = 0;
  for (int32_t g = next_[at(head_)]; g != head_; g = next_[at(g)]) place_[at(g)] = place_[at(previous_[at(g)])] + step;
}

std::vector<int32_t> FusePartition::sorted() {
  std::vector<int32_t> waits(groups_.size(), 0);
  // By the first node's place in the source: scalars of the optimizer do not run, and wait, before backward.
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
    if (!(*this)[g].nodes.empty() && waits[at(g)] == 0) open.push({(*this)[g].nodes[0], g});
  std::vector<int32_t> out;
  out.reserve(count);
  while (!open.empty()) {
    out.push_back(open.top().second);
    open.pop();
    for_each_edge(out.back(), [&](int32_t s) {
      if (--waits[at(id(s))] == 0) open.push({of(s).nodes[0], id(s)});
      return false;
    });
  }
  LATHE_CHECK(out.size() == count, "fusing made a cycle: {} of {} groups are reachable", out.size(), count);
  return out;
}

}  // namespace lathe
