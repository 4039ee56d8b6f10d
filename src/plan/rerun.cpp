#include "plan/rerun.h"

#include <algorithm>

#include "base/checked.h"
#include "ir/live_nodes.h"

namespace lathe {
namespace {

void insert_sorted(std::vector<int32_t>& list, int32_t x) {
  const auto at = std::lower_bound(list.begin(), list.end(), x);
  LATHE_CHECK(at == list.end() || *at != x);
  list.insert(at, x);
}

void erase_sorted(std::vector<int32_t>& list, int32_t x) {
  const auto at = std::lower_bound(list.begin(), list.end(), x);
  LATHE_CHECK(at != list.end() && *at == x);
  list.erase(at);
}

}  // namespace

void Reruns::add(int32_t node, int32_t at) {
  insert_sorted(times_[static_cast<size_t>(node)], at);
  insert_sorted(at_[static_cast<size_t>(at)], node);
  ++count_;
}

void Reruns::remove(int32_t node, int32_t at) {
  erase_sorted(times_[static_cast<size_t>(node)], at);
  erase_sorted(at_[static_cast<size_t>(at)], node);
  --count_;
}

LiveModel::LiveModel(const Graph& g, const StorageFacts& facts, std::span<const int32_t> order, const Storage& storage,
                     std::span<const int64_t> workspace, std::span<const Lane> lanes, int64_t alignment)
    : alignment_(alignment) {
  const int32_t count = static_cast<int32_t>(order.size());
  std::vector<int32_t> position(order.size());
  for (int32_t p = 0; p < count; ++p) position[static_cast<size_t>(order[static_cast<size_t>(p)])] = p;
  std::vector<int32_t> overwritten(g.types.size(), count);  // by state: the node that writes its new value
  std::vector<bool> is_state_value(g.types.size(), false);
  for (const Output& o : g.outputs) {
    if (o.updates < 0) continue;
    const ValueId r = facts.root[static_cast<size_t>(o.value)];
    is_state_value[static_cast<size_t>(r)] = true;
    if (const int32_t writer = facts.def[static_cast<size_t>(r)]; writer >= 0)
      overwritten[static_cast<size_t>(o.updates)] = position[static_cast<size_t>(writer)];
  }
  const std::vector<int32_t> waited = find_waits(facts, g, order, lanes);
  std::vector<int32_t> result_of(g.types.size(), -1);
  nodes_.resize(order.size());
  for (int32_t p = 0; p < count; ++p) {
    const int32_t index = order[static_cast<size_t>(p)];
    const Node& n = g.nodes[static_cast<size_t>(index)];
    NodeFacts& f = nodes_[static_cast<size_t>(p)];
    f.is_view = n.op->has(kView);
    if (f.is_view) continue;
    f.cost = g.cost(n);
    f.workspace = round_up(workspace[static_cast<size_t>(index)], alignment);
    f.latest = count - 1;
    f.waited = waited[static_cast<size_t>(index)];
    for (ValueId v : n.inputs) {
      const ValueId r = facts.root[static_cast<size_t>(v)];
      if (facts.is_input[static_cast<size_t>(r)]) {
        f.latest = std::min(f.latest, overwritten[static_cast<size_t>(r)]);
        continue;
      }
      const int32_t q = result_of[static_cast<size_t>(r)];
      // What is written over state is gone for a rerun when the state changes again, and is cheap: an update.
      if (q < 0)
        f.latest = 0;
      else if (std::ranges::find(f.reads, q) == f.reads.end())
        f.reads.push_back(q);
    }
    for (ValueId v : n.outputs) {
      if (facts.at_end[static_cast<size_t>(v)] || is_state_value[static_cast<size_t>(v)]) f.latest = 0;
      if (storage.pinned[static_cast<size_t>(v)] >= 0) continue;
      const int32_t q = static_cast<int32_t>(results_.size());
      result_of[static_cast<size_t>(v)] = q;
      f.results.push_back(q);
      ResultFacts r{p, round_up(g.type(v).bytes(), alignment), facts.at_end[static_cast<size_t>(v)], {}};
      for (ValueId x : n.inputs) {
        const ValueId source = facts.root[static_cast<size_t>(x)];
        const int32_t s = result_of[static_cast<size_t>(source)];
        if (s >= 0 && g.type(v).bytes() > 0 && g.type(source).bytes() == g.type(v).bytes() &&
            may_overlay(g, facts, index, source, v))
          r.overlays.push_back(s);
      }
      results_.push_back(std::move(r));
    }
    if (f.latest <= p || n.op->has(kOrdered) || f.waited >= 0) f.latest = 0;
  }
  for (const Interval& i : storage.slots)
    if (i.first == count) end_bytes_.push_back(round_up(i.bytes, alignment));
}

void LiveModel::simulate(const Reruns& reruns, LiveProfile& out) const {
  out.base.resize(results_.size());
  int32_t instances = 0;
  for (size_t q = 0; q < results_.size(); ++q) {
    out.base[q] = instances;
    instances += 1 + static_cast<int32_t>(reruns.times(results_[q].node).size());
  }
  out.first.assign(static_cast<size_t>(instances), -1);
  out.last.assign(static_cast<size_t>(instances), -1);
  out.runs.clear();
  std::vector<int32_t> done(nodes_.size(), 0);        // runs so far
  std::vector<int32_t> first_run(nodes_.size() + 1);  // by node, then the end
  const auto newest = [&](int32_t q) {
    return static_cast<size_t>(out.base[static_cast<size_t>(q)] + done[static_cast<size_t>(result(q).node)] - 1);
  };
  const auto visit = [&](int32_t p, int32_t at) {
    const int32_t now = static_cast<int32_t>(out.runs.size());
    out.runs.push_back({p, at});
    if (p == at) first_run[static_cast<size_t>(p)] = now;
    for (int32_t q : node(p).reads) out.last[newest(q)] = now;
    ++done[static_cast<size_t>(p)];
    for (int32_t q : node(p).results) out.first[newest(q)] = out.last[newest(q)] = now;
  };
  for (int32_t t = 0; t < static_cast<int32_t>(nodes_.size()); ++t) {
    for (int32_t p : reruns.at(t)) visit(p, t);
    if (!node(t).is_view) visit(t, t);
  }
  const int32_t end = static_cast<int32_t>(out.runs.size());
  first_run.back() = end;
  for (size_t q = 0; q < results_.size(); ++q)
    if (results_[q].at_end) out.last[newest(static_cast<int32_t>(q))] = end;

  // Slots, as assign_storage gives them.
  std::vector<int64_t> change(static_cast<size_t>(end) + 2, 0);
  std::vector<int32_t> slot(static_cast<size_t>(instances), -1), slot_last, held;  // held: see assign_storage
  std::vector<int32_t> own;                                                        // slots of the node's results
  std::ranges::fill(done, 0);
  for (int32_t now = 0; now < end; ++now) {
    const int32_t p = out.runs[static_cast<size_t>(now)].node;
    const size_t own_instance = static_cast<size_t>(done[static_cast<size_t>(p)]++);
    own.clear();
    for (int32_t q : node(p).results) {
      const size_t i = static_cast<size_t>(out.base[static_cast<size_t>(q)]) + own_instance;
      const ResultFacts& r = result(q);
      int32_t taken = -1;
      for (int32_t x : r.overlays) {
        const size_t source = newest(x);
        const int32_t s = slot[source];
        if (s < 0 || held[static_cast<size_t>(s)] >= now || out.last[source] != now ||
            slot_last[static_cast<size_t>(s)] != now || std::ranges::find(own, s) != own.end())
          continue;
        taken = s;
        break;
      }
      if (taken < 0) {
        taken = static_cast<int32_t>(slot_last.size());
        slot_last.push_back(now);
        held.push_back(-1);
        change[static_cast<size_t>(now)] += r.bytes;
        change[static_cast<size_t>(now) + 1] -= r.bytes;
      }
      change[static_cast<size_t>(slot_last[static_cast<size_t>(taken)]) + 1] += r.bytes;
      change[static_cast<size_t>(out.last[i]) + 1] -= r.bytes;
      slot_last[static_cast<size_t>(taken)] = out.last[i];
      slot[i] = taken;
      own.push_back(taken);
    }
    if (node(p).waited < 0) continue;
    const int32_t until = first_run[static_cast<size_t>(node(p).waited)] - 1;
    const auto hold = [&](int32_t q) {
      const auto s = static_cast<size_t>(slot[newest(q)]);
      held[s] = std::max(held[s], until);
      if (slot_last[s] >= until) return;
      change[static_cast<size_t>(slot_last[s]) + 1] += result(q).bytes;
      change[static_cast<size_t>(until) + 1] -= result(q).bytes;
      slot_last[s] = until;
    };
    for (int32_t q : node(p).reads) hold(q);
    for (int32_t q : node(p).results) hold(q);
    change[static_cast<size_t>(now) + 1] += node(p).workspace;
    change[static_cast<size_t>(until) + 1] -= node(p).workspace;
  }
  out.bytes.resize(static_cast<size_t>(end) + 1);
  out.peak = -1;
  int64_t live = 0;
  for (int32_t now = 0; now <= end; ++now) {
    live += change[static_cast<size_t>(now)];
    int64_t& b = out.bytes[static_cast<size_t>(now)];
    b = live;
    if (now < end)
      b += node(out.runs[static_cast<size_t>(now)].node).workspace;
    else
      for (int64_t e : end_bytes_) b += e;
    if (b > out.peak) {
      out.peak = b;
      out.peak_run = now;
    }
  }
}

namespace {

class RerunBuilder {
 public:
  RerunBuilder(const Graph& g, const std::vector<Choice>& choices, const StorageFacts& facts,
               std::span<const int32_t> order, const Reruns& reruns)
      : g_(g), choices_(choices), facts_(facts), order_(order), now_(g.types.size()), stamp_(now_.size(), 0) {
    Graph& to = out_.graph;
    to.name = g.name;
    to.types = g.types;
    to.inputs = g.inputs;
    to.outputs = g.outputs;
    for (size_t v = 0; v < now_.size(); ++v) now_[v] = static_cast<ValueId>(v);
    for (int32_t t = 0; t < static_cast<int32_t>(order.size()); ++t) {
      for (int32_t p : reruns.at(t)) place(p, true);
      place(t, false);
    }
    drop_views();
  }

  WithReruns finish() { return std::move(out_); }

 private:
  // The newest form of a value: views of results that ran again are made anew.
  ValueId newest(ValueId v) {
    const ValueId root = facts_.root[static_cast<size_t>(v)];
    if (root == v || stamp_[static_cast<size_t>(v)] == stamp_[static_cast<size_t>(root)])
      return now_[static_cast<size_t>(v)];
    const Node& view = g_.nodes[static_cast<size_t>(facts_.def[static_cast<size_t>(v)])];
    Node copy{view.op, view.params, {newest(view.inputs[0])}, {}, view.origin, view.role};
    const ValueId fresh = out_.graph.add_value(g_.type(v));
    copy.outputs.push_back(fresh);
    append(std::move(copy), {}, true);
    now_[static_cast<size_t>(v)] = fresh;
    stamp_[static_cast<size_t>(v)] = stamp_[static_cast<size_t>(root)];
    return fresh;
  }

  void place(int32_t p, bool again) {
    const size_t index = static_cast<size_t>(order_[static_cast<size_t>(p)]);
    const Node& n = g_.nodes[index];
    Node copy{n.op, n.params, {}, {}, again ? SharedString("recompute:" + n.origin.str()) : n.origin, n.role};
    for (ValueId v : n.inputs) copy.inputs.push_back(newest(v));
    for (ValueId v : n.outputs) {
      if (again) {
        now_[static_cast<size_t>(v)] = out_.graph.add_value(g_.type(v));
        ++stamp_[static_cast<size_t>(v)];
      } else if (n.op->has(kView)) {
        now_[static_cast<size_t>(v)] = v;
        stamp_[static_cast<size_t>(v)] = stamp_[static_cast<size_t>(facts_.root[static_cast<size_t>(v)])];
      }
      copy.outputs.push_back(now_[static_cast<size_t>(v)]);
    }
    append(std::move(copy), choices_[index], again);
  }

  void append(Node n, Choice choice, bool again) {
    out_.graph.nodes.push_back(std::move(n));
    out_.choices.push_back(std::move(choice));
    out_.again.push_back(again);
  }

  // A view whose readers all take a newer one is not needed.
  void drop_views() {
    keep_marked(live_nodes(out_.graph, [](const Node& n) { return n.op->has(kView); }), out_.graph.nodes, out_.choices,
                out_.again);
  }

  const Graph& g_;
  const std::vector<Choice>& choices_;
  const StorageFacts& facts_;
  std::span<const int32_t> order_;
  std::vector<ValueId> now_;    // by value: its newest form
  std::vector<int32_t> stamp_;  // by value: the run of its root that this form belongs to
  WithReruns out_;
};

}  // namespace

WithReruns apply_reruns(const Graph& g, const std::vector<Choice>& choices, const StorageFacts& facts,
                        std::span<const int32_t> order, const Reruns& reruns) {
  return RerunBuilder(g, choices, facts, order, reruns).finish();
}

}  // namespace lathe
