#include "passes/cse.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <numeric>
#include <utility>

#include "ir/rewrite.h"

namespace lathe {
namespace {

// Exact in floating point: a + b and b + a have the same bits.
bool is_commutative(const Node& n) { return n.is("add") || n.is("mul") || n.is("logical_and") || n.is("logical_or"); }

class Merge {
 public:
  explicit Merge(const Graph& g) : g_(g), first_(g.types.size()), merged_(g.nodes.size(), false) {
    std::iota(first_.begin(), first_.end(), 0);
    std::vector<bool> is_new_state(g.types.size(), false);
    for (const Output& o : g.outputs)
      if (o.kind == OutputKind::state) is_new_state[static_cast<size_t>(o.value)] = true;
    // Nodes by the hash of what they compute, the newest first.
    std::vector<int32_t> newest(std::bit_ceil(g.nodes.size() + 1), -1), before(g.nodes.size(), -1);
    std::vector<uint64_t> hashes(g.nodes.size(), 0);
    for (size_t i = 0; i < g.nodes.size(); ++i) {
      const Node& n = g.nodes[i];
      if (n.op->has(kRandom) || n.op->has(kOrdered)) continue;
      const bool writes_state =
          std::ranges::any_of(n.outputs, [&](ValueId v) { return is_new_state[static_cast<size_t>(v)]; });
      const Attrs attrs = n.op->to_attrs(n.params.get());
      read(n, inputs_);
      uint64_t h = hash_combine(std::hash<const void*>{}(n.op), hash(attrs));
      for (ValueId v : inputs_) h = hash_combine(h, static_cast<uint64_t>(v));
      const Node* same = nullptr;
      int32_t& at = newest[h & (newest.size() - 1)];
      for (int32_t k = writes_state ? -1 : at; k >= 0 && !same; k = before[static_cast<size_t>(k)]) {
        const Node& other = g.nodes[static_cast<size_t>(k)];
        if (hashes[static_cast<size_t>(k)] == h && is_same(other, n, attrs)) same = &other;
      }
      if (!same) {
        hashes[i] = h;
        before[i] = std::exchange(at, static_cast<int32_t>(i));
        continue;
      }
      merged_[i] = any_ = true;
      for (size_t k = 0; k < n.outputs.size(); ++k) first_[static_cast<size_t>(n.outputs[k])] = same->outputs[k];
    }
  }

  bool any() const { return any_; }
  bool is_merged(size_t node) const { return merged_[node]; }
  ValueId first(ValueId v) const { return first_[static_cast<size_t>(v)]; }  // the value that stands for v

 private:
  // What the node reads, in an order that does not matter to it.
  void read(const Node& n, std::vector<ValueId>& out) const {
    out.clear();
    for (ValueId v : n.inputs) out.push_back(first(v));
    if (is_commutative(n)) std::ranges::sort(out);
  }

  // `inputs_` are those of b.
  bool is_same(const Node& a, const Node& b, const Attrs& attrs) {
    if (a.op != b.op) return false;
    read(a, others_);
    return others_ == inputs_ && (a.params == b.params || equal(a.op->to_attrs(a.params.get()), attrs));
  }

  const Graph& g_;
  std::vector<ValueId> first_;  // by value
  std::vector<bool> merged_;    // by node: its outputs are those of one before it
  std::vector<ValueId> inputs_, others_;
  bool any_ = false;
};

}  // namespace

Graph cse(Graph g, const PassContext&) {
  const Merge merge(g);
  if (!merge.any()) return g;
  Rebuild r(g);
  for (size_t i = 0; i < g.nodes.size(); ++i) {
    Node& n = g.nodes[i];
    if (!merge.is_merged(i))
      r.take(n);
    else
      for (ValueId v : n.outputs) r.map(v, r.mapped(merge.first(v)));
  }
  return r.finish();
}

}  // namespace lathe
