#include "passes/fuse/fuse.h"

#include <algorithm>
#include <unordered_map>

#include "ir/rewrite.h"
#include "ops/broadcast.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/loop.h"
#include "passes/fuse/fuse_groups.h"

namespace lathe {
namespace {

// The body of a group, and which values of the graph are its inputs and outputs.
struct Body {
  GraphPtr graph;
  std::vector<ValueId> inputs, outputs;
};

class BodyBuilder {
 public:
  BodyBuilder(const FuseGraph& f, const FuseGroup& group) : f_(f), group_(group), b_("body") {}

  Body build() {
    for (int32_t i : group_.nodes) add(f_.node(i));
    Body body;
    for (int32_t i : group_.nodes) {
      const bool read = f_.makes_output(i) || std::ranges::any_of(f_.readers[static_cast<size_t>(i)], [&](int32_t r) {
                          return !std::ranges::binary_search(group_.nodes, r);
                        });
      if (!read) continue;
      const ValueId v = f_.node(i).outputs[0];
      b_.output(map_.at(v), OutputKind::result, "y" + std::to_string(body.outputs.size()));
      body.outputs.push_back(v);
    }
    body.inputs = std::move(inputs_);
    body.graph = std::make_shared<const Graph>(b_.finish());
    return body;
  }

 private:
  Value add(const Node& n) {
    Values args;
    for (ValueId v : n.inputs) args.push_back(value(v));
    const Value y = b_.add(*n.op, args, n.params)[0];
    map_[n.outputs[0]] = y;
    return y;
  }

  // Transparent nodes are copied into the body; everything else from outside is an input.
  Value value(ValueId v) {
    if (const auto it = map_.find(v); it != map_.end()) return it->second;
    const int32_t d = f_.def[static_cast<size_t>(v)];
    if (d >= 0 && f_.transparent[static_cast<size_t>(d)]) return add(f_.node(d));
    inputs_.push_back(v);
    return map_[v] = b_.input(f_.g.type(v), InputKind::batch, "x" + std::to_string(inputs_.size() - 1));
  }

  const FuseGraph& f_;
  const FuseGroup& group_;
  Builder b_;
  std::unordered_map<ValueId, Value> map_;
  std::vector<ValueId> inputs_;
};

class Fuse {
 public:
  Fuse(Graph& g, const PassContext& context) : g_(g), f_(g), context_(context), r_(g), emitted_(g.types.size(), false) {
    for (const Input& in : g.inputs) emitted_[static_cast<size_t>(in.value)] = true;
  }

  Graph run() {
    for (const FuseGroup& group : form_groups(f_, context_.target))
      if (group.kind.empty() || !emit_fused(group))
        for (int32_t i : group.nodes) emit(i);
    for (const Output& o : f_.g.outputs) materialize(o.value);
    return r_.finish();
  }

 private:
  bool emit_fused(const FuseGroup& group) {
    const Body body = BodyBuilder(f_, group).build();
    if (body.graph->nodes.size() < 2 || body.inputs.empty()) return false;
    if (group.kind == "loop" && !is_good_loop(body)) return false;
    const InPlaceOf place(r_.builder(), f_.node(group.nodes.back()));
    const Values out = r_.builder().add(fused_op, r_.mapped(body.inputs),
                                        make_params(FusedParams{std::string(group.kind), body.graph}));
    for (size_t i = 0; i < out.size(); ++i) {
      r_.map(body.outputs[i], out[i]);
      emitted_[static_cast<size_t>(body.outputs[i])] = true;
    }
    return true;
  }

  // The form that backends run, and safe where an output takes the storage of an input: each element is read at the
  // point that writes it.
  bool is_good_loop(const Body& body) const {
    const auto loop = lower_loop(*body.graph);
    if (!loop) return false;
    for (const LoopStore& store : loop->tail.stores) {
      const ValueId state = f_.updates[static_cast<size_t>(body.outputs[static_cast<size_t>(store.output)])];
      for (const LoopRead& read : loop->map.reads)
        if (body.inputs[static_cast<size_t>(read.input)] == state) return false;
    }
    return true;
  }

  void materialize(ValueId v) {
    if (emitted_[static_cast<size_t>(v)]) return;
    const int32_t d = f_.def[static_cast<size_t>(v)];
    LATHE_CHECK(d >= 0 && f_.transparent[static_cast<size_t>(d)], "value %{} was lost", v);
    emit(d);
  }

  void emit(int32_t i) {
    Node& n = g_.nodes[at(i)];
    for (ValueId v : n.inputs) materialize(v);
    for (ValueId v : n.outputs) emitted_[at(v)] = true;
    if (f_.transparent[at(i)])
      r_.copy(n);  // bodies may copy it still
    else
      r_.take(n);
  }

  Graph& g_;  // nodes that are emitted as they are move out of it
  FuseGraph f_;
  const PassContext& context_;
  Rebuild r_;
  std::vector<bool> emitted_;  // by value of the source: has a value in the new graph
};

}  // namespace

Graph fuse(Graph g, const PassContext& context) { return Fuse(g, context).run(); }

}  // namespace lathe
