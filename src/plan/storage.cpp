#include "plan/storage.h"

#include <algorithm>
#include <array>

#include "ops/fused.h"
#include "ops/loop.h"

namespace lathe {
namespace {

bool is_dense(const Ints& strides, const Shape& domain) {
  const Ints dense = domain.strides();
  for (int d = 0; d < domain.ndim(); ++d)
    if (domain[d] != 1 && strides[static_cast<size_t>(d)] != dense[static_cast<size_t>(d)]) return false;
  return true;
}

// Inputs that are read only at the index of the element being written.
std::vector<uint8_t> same_index_inputs(const Graph& g, const Node& n) {
  if (n.op->has(kElementwise) || n.op->has(kInPlace)) return std::vector<uint8_t>(n.inputs.size(), 1);
  if (!n.is("fused") || n.get<FusedParams>().kind != "loop") return {};
  const auto loop = lower_loop(n, g.types_of(n.inputs));
  if (!loop || loop->reduce != LoopReduce::none) return {};
  std::vector<uint8_t> out(n.inputs.size(), 1);
  for (size_t i = 0; i < n.inputs.size(); ++i) out[i] = g.type(n.inputs[i]).numel() == loop->domain.numel();
  for (const LoopRead& r : loop->map.reads)
    if (!is_dense(r.strides, loop->domain)) out[static_cast<size_t>(r.input)] = 0;
  return out;
}

class Assignment {
 public:
  Assignment(const Graph& g, const StorageFacts& facts, std::span<const int32_t> order,
             std::span<const int64_t> workspace, std::span<const Lane> lanes)
      : g_(g),
        facts_(facts),
        order_(order),
        end_(static_cast<int32_t>(g.nodes.size())),
        waited_(find_waits(facts, g, order, lanes)) {
    position_.resize(g.nodes.size());
    for (size_t p = 0; p < order.size(); ++p) position_[static_cast<size_t>(order[p])] = static_cast<int32_t>(p);
    out_.slot.assign(g.types.size(), -1);
    out_.pinned.assign(g.types.size(), -1);
    out_.workspace.assign(g.nodes.size(), -1);
    out_.saved.assign(g.outputs.size(), -1);
    find_last();
    pin_updates();
    give_slots(workspace);
    plan_copies();
  }

  Storage finish() { return std::move(out_); }

 private:
  ValueId root(ValueId v) const { return facts_.root[static_cast<size_t>(v)]; }
  bool is_input(ValueId v) const { return facts_.is_input[static_cast<size_t>(v)]; }

  void find_last() {
    last_.assign(g_.types.size(), -1);
    for (size_t v = 0; v < g_.types.size(); ++v) {
      for (int32_t r : facts_.readers[v]) last_[v] = std::max(last_[v], position_[static_cast<size_t>(r)]);
      if (facts_.at_end[v]) last_[v] = end_;
    }
  }

  // The new value of state is written over the old one where all that read the old one come before, or are the writer
  // and read at the index that they write.
  void pin_updates() {
    updated_.assign(g_.types.size(), -1);
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const Output& o = g_.outputs[i];
      if (o.updates >= 0 && root(o.value) != o.updates)
        updated_[static_cast<size_t>(o.updates)] = static_cast<int32_t>(i);
    }
    for (const Output& o : g_.outputs) {
      if (o.updates < 0) continue;
      const ValueId v = root(o.value);
      if (is_input(v) || out_.pinned[static_cast<size_t>(v)] >= 0 || facts_.at_end[static_cast<size_t>(o.updates)])
        continue;
      const int32_t writer = facts_.def[static_cast<size_t>(v)];
      const int32_t at = position_[static_cast<size_t>(writer)], last = last_[static_cast<size_t>(o.updates)];
      if (last < at || (last == at && may_overlay(g_, facts_, writer, o.updates, v)))
        out_.pinned[static_cast<size_t>(v)] = o.updates;
    }
  }

  void give_slots(std::span<const int64_t> workspace) {
    for (int32_t node : order_) {
      const Node& n = g_.nodes[static_cast<size_t>(node)];
      const int32_t at = position_[static_cast<size_t>(node)];
      if (!n.op->has(kView))
        for (ValueId v : n.outputs) give_slot(node, v, at);
      if (workspace[static_cast<size_t>(node)] > 0)
        out_.workspace[static_cast<size_t>(node)] = add_slot(workspace[static_cast<size_t>(node)], at, at);
      if (const int32_t waited = waited_[static_cast<size_t>(node)]; waited >= 0) {
        for (ValueId v : n.inputs) hold(out_.slot[static_cast<size_t>(root(v))], waited - 1);
        for (ValueId v : n.outputs) hold(out_.slot[static_cast<size_t>(v)], waited - 1);
        hold(out_.workspace[static_cast<size_t>(node)], waited - 1);
      }
    }
  }

  // Another lane is at work there until then.
  void hold(int32_t s, int32_t until) {
    if (s < 0) return;
    out_.slots[static_cast<size_t>(s)].last = std::max(out_.slots[static_cast<size_t>(s)].last, until);
    held_[static_cast<size_t>(s)] = std::max(held_[static_cast<size_t>(s)], until);
  }

  void give_slot(int32_t node, ValueId v, int32_t at) {
    if (out_.pinned[static_cast<size_t>(v)] >= 0) return;
    const int32_t last = std::max(at, last_[static_cast<size_t>(v)]);
    const int64_t bytes = g_.type(v).bytes();
    for (ValueId x : g_.nodes[static_cast<size_t>(node)].inputs) {
      const ValueId r = root(x);
      const int32_t s = out_.slot[static_cast<size_t>(r)];
      // A slot's time runs on with whoever took it over, so its end tells whether another output has it already.
      if (s < 0 || bytes == 0 || held_[static_cast<size_t>(s)] >= at || last_[static_cast<size_t>(r)] != at ||
          out_.slots[static_cast<size_t>(s)].last != at || out_.slots[static_cast<size_t>(s)].bytes != bytes ||
          taken(node, s) || !may_overlay(g_, facts_, node, r, v))
        continue;
      out_.slots[static_cast<size_t>(s)].last = last;
      out_.slot[static_cast<size_t>(v)] = s;
      return;
    }
    out_.slot[static_cast<size_t>(v)] = add_slot(bytes, at, last);
  }

  // Another output of the node that nobody reads may hold the slot although its time ends here.
  bool taken(int32_t node, int32_t s) const {
    return std::ranges::any_of(g_.nodes[static_cast<size_t>(node)].outputs,
                               [&](ValueId v) { return out_.slot[static_cast<size_t>(v)] == s; });
  }

  int32_t add_slot(int64_t bytes, int32_t first, int32_t last) {
    out_.slots.push_back({bytes, first, last});
    held_.push_back(-1);
    return static_cast<int32_t>(out_.slots.size() - 1);
  }

  // State that is not written in place is copied at the end. Old values that are outputs too are saved first, so that
  // the copies may come in any order (two states may even change places).
  void plan_copies() {
    std::vector<int32_t> kept(g_.types.size(), -1);
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const ValueId v = root(g_.outputs[i].value);
      if (!is_input(v) || updated_[static_cast<size_t>(v)] < 0 || v == g_.outputs[i].updates) continue;
      int32_t& s = kept[static_cast<size_t>(v)];
      if (s < 0) {
        s = add_slot(g_.type(v).bytes(), end_, end_);
        out_.copies.push_back({.to_slot = s, .from = v});
      }
      out_.saved[i] = s;
    }
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const Output& o = g_.outputs[i];
      const ValueId v = root(o.value);
      if (o.updates < 0 || v == o.updates || out_.pinned[static_cast<size_t>(v)] == o.updates) continue;
      if (out_.saved[i] >= 0)
        out_.copies.push_back({.to = o.updates, .from_slot = out_.saved[i]});
      else
        out_.copies.push_back({.to = o.updates, .from = v});
    }
  }

  const Graph& g_;
  const StorageFacts& facts_;
  std::span<const int32_t> order_;
  int32_t end_;
  std::vector<int32_t> position_, last_;
  std::vector<int32_t> waited_;   // by node, see find_waits()
  std::vector<int32_t> held_;     // by slot: the last place in the order at which another lane may be at work there
  std::vector<int32_t> updated_;  // by state input: the output that gives it another value, or -1
  Storage out_;
};

}  // namespace

StorageFacts::StorageFacts(const Graph& g)
    : root(g.types.size()),
      def(definitions(g)),
      readers(g.types.size()),
      is_input(g.types.size(), false),
      at_end(g.types.size(), false),
      same_index(g.nodes.size()) {
  for (size_t v = 0; v < root.size(); ++v) root[v] = static_cast<ValueId>(v);
  for (const Input& in : g.inputs) is_input[static_cast<size_t>(in.value)] = true;
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    const Node& n = g.nodes[i];
    if (n.op->has(kView)) {
      root[static_cast<size_t>(n.outputs[0])] = root[static_cast<size_t>(n.inputs[0])];
      continue;
    }
    same_index[i] = same_index_inputs(g, n);
    for (ValueId v : n.inputs) {
      auto& list = readers[static_cast<size_t>(root[static_cast<size_t>(v)])];
      if (list.empty() || list.back() != static_cast<int32_t>(i)) list.push_back(static_cast<int32_t>(i));
    }
  }
  for (const Output& o : g.outputs) {
    const ValueId v = root[static_cast<size_t>(o.value)];
    // State that keeps its value is needed by nobody at the end.
    if (v != o.updates) at_end[static_cast<size_t>(v)] = true;
  }
}

bool may_overlay(const Graph& g, const StorageFacts& facts, int32_t node, ValueId storage, ValueId out) {
  const Node& n = g.nodes[static_cast<size_t>(node)];
  const auto& same = facts.same_index[static_cast<size_t>(node)];
  if (same.empty()) return false;
  // Input i under output i alone.
  if (n.op->has(kInPlace))
    for (size_t i = 0; i < n.inputs.size(); ++i)
      if ((facts.root[static_cast<size_t>(n.inputs[i])] == storage) != (n.outputs[i] == out)) return false;
  for (size_t i = 0; i < n.inputs.size(); ++i)
    if (facts.root[static_cast<size_t>(n.inputs[i])] == storage &&
        (!same[i] || size_of(g.type(n.inputs[i]).dtype) != size_of(g.type(out).dtype)))
      return false;
  return true;
}

Storage assign_storage(const Graph& g, const StorageFacts& facts, std::span<const int32_t> order,
                       std::span<const int64_t> workspace, std::span<const Lane> lanes) {
  return Assignment(g, facts, order, workspace, lanes).finish();
}

std::vector<int32_t> find_waits(const StorageFacts& facts, const Graph& g, std::span<const int32_t> order,
                                std::span<const Lane> lanes) {
  const auto count = static_cast<int32_t>(order.size());
  std::vector<int32_t> waited(order.size(), -1), position(order.size());
  for (int32_t p = 0; p < count; ++p) position[static_cast<size_t>(order[static_cast<size_t>(p)])] = p;
  std::array<int32_t, std::size(kLanes)> next;  // by lane: of the launch that follows
  next.fill(count);
  for (int32_t p = count; p-- > 0;) {
    const auto node = static_cast<size_t>(order[static_cast<size_t>(p)]);
    if (lanes[node] == Lane::compute) continue;
    int32_t& first = next[static_cast<size_t>(lanes[node])];
    for (const ValueId v : g.nodes[node].outputs)
      for (const int32_t r : facts.readers[static_cast<size_t>(facts.root[static_cast<size_t>(v)])]) {
        const auto reader = static_cast<size_t>(r);
        if (position[reader] > p)
          first = std::min(first, lanes[reader] == Lane::compute ? position[reader] : waited[reader]);
      }
    waited[node] = first;
  }
  return waited;
}

}  // namespace lathe
