#include "ops/expand_nodes.h"

#include <algorithm>

#include "ir/rewrite.h"
#include "ops/cast.h"
#include "ops/fused.h"

namespace lathe {
namespace {

// `types` are the node's results.
Values expand_in_f32(Builder& b, const Node& n, ArgValues args, const Types& types) {
  bool narrow = false;
  for (const Value& x : args) narrow = narrow || is_16bit(x.dtype());
  narrow = narrow && n.op != &fused_op;
  Values wide(args.begin(), args.end());
  const InPlaceOf place(b, n);
  if (narrow)
    for (Value& x : wide) x = cast(x, compute_type(x.dtype()));
  Values out = expand_node(b, n, wide);
  LATHE_USER_CHECK(out.size() == types.size(), "{}: expected {} values of its expand(), as of its infer(), got {}",
                   n.op->name(), types.size(), out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    if (narrow) out[i] = cast(out[i], types[i].dtype);
    LATHE_USER_CHECK(out[i].type() == types[i], "{}: expected {} of its expand(), as of its infer(), got {}",
                     n.op->name(), to_string(types[i]), to_string(out[i].type()));
  }
  return out;
}

}  // namespace

Graph expand_marked(Graph g, const ExpandMarks& marks) {
  std::vector<bool> fresh(g.nodes.size(), true);
  for (int depth = 0;; ++depth) {
    const std::vector<bool> marked = marks(g, fresh);
    LATHE_CHECK(marked.size() == g.nodes.size(), "{} marks for {} nodes", marked.size(), g.nodes.size());
    const auto first = std::ranges::find(marked, true);
    if (first == marked.end()) return g;
    check_expansion_ends(g, depth, *g.nodes[static_cast<size_t>(first - marked.begin())].op);
    fresh.clear();
    size_t i = 0;
    g = rebuild(std::move(g), [&](Rebuild& r, const Node& n) -> std::optional<Values> {
      if (!marked[i++]) {
        fresh.push_back(false);
        return std::nullopt;
      }
      Values out = expand_in_f32(r.builder(), n, r.mapped(n.inputs), r.source().types_of(n.outputs));
      fresh.resize(r.builder().graph().nodes.size(), true);
      return out;
    });
  }
}

Graph expand_where(Graph g, const std::function<bool(const Graph&, const Node&)>& wanted) {
  return expand_marked(std::move(g), [&](const Graph& now, const std::vector<bool>& fresh) {
    std::vector<bool> marked(fresh.size(), false);
    for (size_t i = 0; i < fresh.size(); ++i)
      marked[i] = fresh[i] && now.nodes[i].op->is_composite() && wanted(now, now.nodes[i]);
    return marked;
  });
}

}  // namespace lathe
