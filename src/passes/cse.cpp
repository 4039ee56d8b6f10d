#include "passes/cse.h"

#include <algorithm>
#include <functional>
#include <unordered_map>

#include "ir/rewrite.h"

namespace lathe {
namespace {

// Exact in floating point: a + b and b + a have the same bits.
bool is_commutative(const Node& n) { return n.is("add") || n.is("mul") || n.is("logical_and") || n.is("logical_or"); }

struct Key {
  std::vector<ValueId> inputs;
  Attrs attrs;
  uint64_t hash;
};

Key key_of(const Node& n, const Rebuild& r) {
  Key k;
  k.inputs.reserve(n.inputs.size());
  for (ValueId v : n.inputs) k.inputs.push_back(r.mapped(v).id());
  if (is_commutative(n)) std::ranges::sort(k.inputs);
  k.attrs = n.op->to_attrs(n.params.get());
  k.hash = hash_combine(std::hash<const void*>{}(n.op), hash(k.attrs));
  for (ValueId v : k.inputs) k.hash = hash_combine(k.hash, static_cast<uint64_t>(v));
  return k;
}

}  // namespace

Graph cse(Graph g, const PassContext&) {
  std::vector<bool> is_new_state(g.types.size(), false);
  for (const Output& o : g.outputs)
    if (o.kind == OutputKind::state) is_new_state[static_cast<size_t>(o.value)] = true;

  struct Seen {
    const Node* source;
    std::vector<ValueId> inputs;
    Attrs attrs;
    Values outputs;
  };
  std::unordered_multimap<uint64_t, Seen> seen;
  seen.reserve(g.nodes.size());
  bool any = false;
  Rebuild r(g);
  for (const Node& n : g.nodes) {
    const bool writes_state =
        std::ranges::any_of(n.outputs, [&](ValueId v) { return is_new_state[static_cast<size_t>(v)]; });
    if (n.op->has(kRandom)) {
      r.copy(n);
      continue;
    }
    Key k = key_of(n, r);
    const Seen* same = nullptr;
    const auto [first, last] = seen.equal_range(k.hash);
    for (auto it = first; it != last && !same && !writes_state; ++it)
      if (it->second.source->op == n.op && it->second.inputs == k.inputs && equal(it->second.attrs, k.attrs))
        same = &it->second;
    if (same) {
      r.replace(n, same->outputs);
      any = true;
      continue;
    }
    r.copy(n);
    seen.emplace(k.hash, Seen{&n, std::move(k.inputs), std::move(k.attrs), r.mapped(n.outputs)});
  }
  return any ? r.finish() : g;
}

}  // namespace lathe
