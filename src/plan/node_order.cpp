#include "plan/node_order.h"

#include <algorithm>
#include <numeric>
#include <queue>

#include "base/error.h"
#include "plan/overlap.h"

namespace lathe {
namespace {

class OrderSearch {
 public:
  OrderSearch(const Graph& g, const StorageFacts& facts)
      : g_(g), facts_(facts), count_(static_cast<int32_t>(g.nodes.size())) {
    before_.resize(g.nodes.size());
    is_update_.assign(g.nodes.size(), false);
    is_state_output_.assign(g.types.size(), false);
    for (int32_t i = 0; i < count_; ++i)
      for (ValueId v : node(i).inputs)
        if (const int32_t d = facts.def[static_cast<size_t>(v)]; d >= 0) before(i).push_back(d);
    int32_t last = -1;
    for (int32_t i = 0; i < count_; ++i) {
      if (!node(i).op->has(kOrdered)) continue;
      if (last >= 0) before(i).push_back(last);
      last = i;
    }
    add_update_edges();
    after_.resize(g.nodes.size());
    for (int32_t i = 0; i < count_; ++i)
      for (int32_t j : before(i)) after_[static_cast<size_t>(j)].push_back(i);
  }

  bool readers_first() const { return readers_first_; }
  std::span<const std::vector<int32_t>> before() const { return before_; }  // by node

  // List scheduling: among the nodes that are ready, the one of the first class, then of the lowest rank. Classes:
  // updates and views; nodes that give back at least the memory they take, if `free_early`; the others.
  std::vector<int32_t> list_order(std::span<const int32_t> rank, bool free_early) {
    ListRun run(*this, rank, free_early);
    return run.result();
  }

  // What each output needs, just before it; shallow outputs first. (Depth first search from the sinks.)
  std::vector<int32_t> demand_order() const {
    std::vector<int32_t> depth(g_.nodes.size(), 0), sinks;
    std::vector<bool> read(g_.nodes.size(), false);
    for (int32_t i = 0; i < count_; ++i)
      for (ValueId v : node(i).inputs)
        if (const int32_t d = facts_.def[static_cast<size_t>(v)]; d >= 0) {
          depth[static_cast<size_t>(i)] = std::max(depth[static_cast<size_t>(i)], depth[static_cast<size_t>(d)] + 1);
          read[static_cast<size_t>(d)] = true;
        }
    for (int32_t i = 0; i < count_; ++i)
      if (!read[static_cast<size_t>(i)] || is_update_[static_cast<size_t>(i)]) sinks.push_back(i);
    std::ranges::stable_sort(sinks, {}, [&](int32_t i) { return depth[static_cast<size_t>(i)]; });
    std::vector<int32_t> order;
    std::vector<uint8_t> state(g_.nodes.size(), 0);  // 1: on the stack, 2: done
    std::vector<std::pair<int32_t, size_t>> stack;
    for (int32_t sink : sinks) {
      if (state[static_cast<size_t>(sink)] == 0) stack.push_back({sink, 0});
      while (!stack.empty()) {
        auto& [i, next] = stack.back();
        state[static_cast<size_t>(i)] = std::max<uint8_t>(state[static_cast<size_t>(i)], 1);
        const auto& list = before_[static_cast<size_t>(i)];
        while (next < list.size() && state[static_cast<size_t>(list[next])] == 2) ++next;
        if (next < list.size()) {
          LATHE_CHECK(state[static_cast<size_t>(list[next])] == 0, "the nodes of \"{}\" form a cycle", g_.name);
          const int32_t child = list[next++];
          stack.push_back({child, 0});
          continue;
        }
        state[static_cast<size_t>(i)] = 2;
        order.push_back(i);
        stack.pop_back();
      }
    }
    return order;
  }

 private:
  const Node& node(int32_t i) const { return g_.nodes[static_cast<size_t>(i)]; }
  std::vector<int32_t>& before(int32_t i) { return before_[static_cast<size_t>(i)]; }

  // Readers of a state value (views and what reads them included) stand before the writer of its update, unless the
  // writer's result flows into such a reader: found as a list schedule that gets stuck, and left out.
  void add_update_edges() {
    std::vector<std::vector<int32_t>> readers(g_.types.size());  // by root, views included
    for (int32_t i = 0; i < count_; ++i)
      for (ValueId v : node(i).inputs) {
        const ValueId r = facts_.root[static_cast<size_t>(v)];
        if (facts_.is_input[static_cast<size_t>(r)]) readers[static_cast<size_t>(r)].push_back(i);
      }
    waits_.resize(g_.nodes.size());
    for (const Output& o : g_.outputs) {
      if (o.updates < 0) continue;
      if (facts_.root[static_cast<size_t>(o.value)] == o.updates) {  // keeps its value: there is no write to wait for
        readers_first_ = readers_first_ && o.value == o.updates;
        continue;
      }
      is_state_output_[static_cast<size_t>(facts_.root[static_cast<size_t>(o.value)])] = true;
      // The node that defines the output itself (a view, maybe) and the one that writes its memory.
      for (ValueId v : {o.value, facts_.root[static_cast<size_t>(o.value)]}) {
        const int32_t writer = facts_.def[static_cast<size_t>(v)];
        if (writer < 0) continue;
        is_update_[static_cast<size_t>(writer)] = true;
        for (int32_t r : readers[static_cast<size_t>(o.updates)])
          if (r != writer) waits_[static_cast<size_t>(writer)].push_back(r);
      }
    }
    drop_cyclic_waits();
    for (int32_t i = 0; i < count_; ++i) {
      auto& list = before(i);
      list.insert(list.end(), waits_[static_cast<size_t>(i)].begin(), waits_[static_cast<size_t>(i)].end());
    }
  }

  void drop_cyclic_waits() {
    std::vector<int32_t> data(g_.nodes.size(), 0), waits(g_.nodes.size(), 0);
    std::vector<std::vector<int32_t>> after_data(g_.nodes.size()), after_waits(g_.nodes.size());
    for (int32_t i = 0; i < count_; ++i) {
      for (int32_t j : before(i)) after_data[static_cast<size_t>(j)].push_back(i);
      for (int32_t j : waits_[static_cast<size_t>(i)]) after_waits[static_cast<size_t>(j)].push_back(i);
      data[static_cast<size_t>(i)] = static_cast<int32_t>(before(i).size());
      waits[static_cast<size_t>(i)] = static_cast<int32_t>(waits_[static_cast<size_t>(i)].size());
    }
    std::vector<int32_t> ready;
    std::vector<bool> done(g_.nodes.size(), false);
    const auto check = [&](int32_t i) {
      if (data[static_cast<size_t>(i)] == 0 && waits[static_cast<size_t>(i)] == 0 && !done[static_cast<size_t>(i)])
        ready.push_back(i);
    };
    for (int32_t i = 0; i < count_; ++i) check(i);
    int32_t next = 0;  // nodes before it are done
    for (;;) {
      while (!ready.empty()) {
        const int32_t i = ready.back();
        ready.pop_back();
        done[static_cast<size_t>(i)] = true;
        for (int32_t j : after_data[static_cast<size_t>(i)]) --data[static_cast<size_t>(j)], check(j);
        for (int32_t j : after_waits[static_cast<size_t>(i)]) --waits[static_cast<size_t>(j)], check(j);
      }
      while (next < count_ && done[static_cast<size_t>(next)]) ++next;
      if (next == count_) return;
      // The first node that is left has all its data, so it waits for readers that cannot come: it goes without them.
      for (int32_t j : waits_[static_cast<size_t>(next)]) std::erase(after_waits[static_cast<size_t>(j)], next);
      waits_[static_cast<size_t>(next)].clear();
      waits[static_cast<size_t>(next)] = 0;
      readers_first_ = false;
      LATHE_CHECK(data[static_cast<size_t>(next)] == 0, "the nodes of \"{}\" are not in topological order", g_.name);
      ready.push_back(next);
    }
  }

  class ListRun {
   public:
    ListRun(const OrderSearch& s, std::span<const int32_t> rank, bool free_early)
        : s_(s),
          rank_(rank),
          free_early_(free_early),
          pending_(s.g_.nodes.size(), 0),
          class_(s.g_.nodes.size(), 3),
          left_(s.g_.types.size(), 0) {
      for (int32_t i = 0; i < s.count_; ++i)
        pending_[static_cast<size_t>(i)] = static_cast<int32_t>(s.before_[static_cast<size_t>(i)].size());
      for (size_t v = 0; v < left_.size(); ++v) left_[v] = static_cast<int32_t>(s.facts_.readers[v].size());
    }

    std::vector<int32_t> result() {
      for (int32_t i = 0; i < s_.count_; ++i)
        if (pending_[static_cast<size_t>(i)] == 0) push(i);
      std::vector<int32_t> order;
      while (!heap_.empty()) {
        const Entry e = heap_.top();
        heap_.pop();
        if (e.cls != class_[static_cast<size_t>(e.node)]) continue;  // done, or pushed again with a better class
        class_[static_cast<size_t>(e.node)] = kDone;
        order.push_back(e.node);
        note_reads(e.node);
        for (int32_t j : s_.after_[static_cast<size_t>(e.node)])
          if (--pending_[static_cast<size_t>(j)] == 0) push(j);
      }
      LATHE_CHECK(order.size() == s_.g_.nodes.size());
      return order;
    }

   private:
    static constexpr int kDone = 4;
    struct Entry {
      int cls;
      int32_t rank, node;
      friend bool operator<(const Entry& a, const Entry& b) {
        return a.cls != b.cls ? a.cls > b.cls : a.rank > b.rank;  // the heap's top is the lowest
      }
    };

    void push(int32_t i) {
      const int cls = classify(i);
      if (cls == class_[static_cast<size_t>(i)]) return;
      class_[static_cast<size_t>(i)] = cls;
      heap_.push({cls, rank_[static_cast<size_t>(i)], i});
    }

    int classify(int32_t i) const {
      const Node& n = s_.node(i);
      if (s_.is_update_[static_cast<size_t>(i)] || n.op->has(kView)) return 0;
      if (!free_early_) return 2;
      int64_t freed = 0, taken = 0;
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const ValueId r = s_.facts_.root[static_cast<size_t>(n.inputs[k])];
        const bool seen = std::any_of(n.inputs.begin(), n.inputs.begin() + static_cast<int64_t>(k),
                                      [&](ValueId v) { return s_.facts_.root[static_cast<size_t>(v)] == r; });
        if (!seen && left_[static_cast<size_t>(r)] == 1 && !s_.facts_.is_input[static_cast<size_t>(r)] &&
            !s_.facts_.at_end[static_cast<size_t>(r)])
          freed += s_.g_.type(r).bytes();
      }
      for (ValueId v : n.outputs)
        if (!s_.is_state_output_[static_cast<size_t>(v)]) taken += s_.g_.type(v).bytes();
      return freed > 0 && taken <= freed ? 1 : 2;
    }

    // A value with one reader left will be freed by it: that reader's class may rise.
    void note_reads(int32_t i) {
      const Node& n = s_.node(i);
      if (n.op->has(kView)) return;
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const ValueId r = s_.facts_.root[static_cast<size_t>(n.inputs[k])];
        const bool seen = std::any_of(n.inputs.begin(), n.inputs.begin() + static_cast<int64_t>(k),
                                      [&](ValueId v) { return s_.facts_.root[static_cast<size_t>(v)] == r; });
        if (seen || --left_[static_cast<size_t>(r)] != 1 || !free_early_) continue;
        for (int32_t j : s_.facts_.readers[static_cast<size_t>(r)])
          if (class_[static_cast<size_t>(j)] != kDone && pending_[static_cast<size_t>(j)] == 0) push(j);
      }
    }

    const OrderSearch& s_;
    std::span<const int32_t> rank_;
    bool free_early_;
    std::vector<int32_t> pending_;
    std::vector<int> class_;  // 3: not ready yet
    std::vector<int32_t> left_;
    std::priority_queue<Entry> heap_;
  };

  const Graph& g_;
  const StorageFacts& facts_;
  int32_t count_;
  std::vector<std::vector<int32_t>> before_;  // by node: what must come first
  std::vector<std::vector<int32_t>> after_;   // by node: the nodes that it must come before
  std::vector<std::vector<int32_t>> waits_;   // by node: readers of the state that it overwrites
  std::vector<bool> is_update_, is_state_output_;
  bool readers_first_ = true;
};

}  // namespace

NodeOrder order_nodes(const Graph& g, const StorageFacts& facts, std::span<const int64_t> workspace, int64_t alignment,
                      std::span<const Lane> all_lanes, int64_t in_flight) {
  // Nothing in flight: whoever gets memory of a collective waits for it, and it is kept for nobody.
  const std::vector<Lane> one(all_lanes.size(), Lane::compute);
  const std::span<const Lane> lanes = in_flight > 0 ? all_lanes : one;
  OrderSearch s(g, facts);
  std::vector<int32_t> as_built(g.nodes.size());
  std::iota(as_built.begin(), as_built.end(), 0);
  // A part of state that is whole could be taken at any time: it is when it is read.
  for (size_t i = g.nodes.size(); i-- > 0;)
    if (const Node& n = g.nodes[i]; n.is("local_slice"))
      for (const int32_t reader : facts.readers[static_cast<size_t>(n.outputs[0])])
        as_built[i] = as_built[i] == static_cast<int32_t>(i)
                          ? as_built[static_cast<size_t>(reader)]
                          : std::min(as_built[i], as_built[static_cast<size_t>(reader)]);
  std::vector<int32_t> by_demand(g.nodes.size());
  const std::vector<int32_t> demand = s.demand_order();
  for (size_t p = 0; p < demand.size(); ++p) by_demand[static_cast<size_t>(demand[p])] = static_cast<int32_t>(p);

  NodeOrder best;
  int64_t best_peak = -1;
  const auto consider = [&](std::vector<int32_t> order) {
    Storage storage = assign_storage(g, facts, order, workspace, lanes);
    const int64_t peak = find_peak(storage.slots, alignment).bytes;
    if (best_peak >= 0 && peak >= best_peak) return;
    best_peak = peak;
    best.order = std::move(order);
    best.storage = std::move(storage);
  };
  consider(s.list_order(as_built, false));
  consider(s.list_order(as_built, true));
  consider(s.list_order(by_demand, true));
  if (std::ranges::any_of(lanes, [](Lane l) { return l != Lane::compute; })) {
    best.order = overlap_lanes(g, s.before(), best.order, lanes, in_flight);
    best.storage = assign_storage(g, facts, best.order, workspace, lanes);
  }
  best.readers_first = s.readers_first();
  return best;
}

}  // namespace lathe
