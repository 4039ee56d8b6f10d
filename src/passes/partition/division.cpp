#include "passes/partition/division.h"

#include <cstdint>
#include <map>
#include <optional>
#include <set>

#include "ir/builder.h"
#include "ops/collective.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "passes/autodiff.h"

namespace lathe {
namespace {

// Where a reader stands: what each of these needs whole is gathered for it alone.
enum class Direction : uint8_t { forward, backward, update };

Direction direction_of(const Node& n) {
  if (n.origin.str().starts_with(kBackwardOrigin)) return Direction::backward;
  return n.role == Role::update ? Direction::update : Direction::forward;
}

// The new graph while it is built.
class Division {
 public:
  // `outputs`: empty: as they are labelled.
  Division(const Graph& g, const Labels& labels, const Mesh& mesh, const Placements& inputs, const Placements& outputs)
      : g_(g),
        labels_(labels),
        mesh_(mesh),
        outputs_(outputs),
        b_(g.name),
        def_(definitions(g)),
        zero_(zeros_of(g)),
        made_(g.types.size()) {
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs[i].is_replicated() && labels.of[index_of(g.outputs[i].value)].of_state)
        gathered_.insert(g.outputs[i].value);
    std::vector<ValueId> made;
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      const Input& in = g.inputs[i];
      made.push_back(b_.input(part_type(g.type(in.value), inputs[i], mesh), in.kind, in.name).id());
    }
    for (size_t i = 0; i < g.inputs.size(); ++i) set(g.inputs[i].value, inputs[i], b_.value(made[i]));
    for (size_t i = 0; i < g.nodes.size(); ++i) add(g.nodes[i], labels.rows[i]);
  }

  Graph finish() {
    direction_ = Direction::update;
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const Output& o = g_.outputs[i];
      const Value v = to(o.value, outputs_.empty() ? labels_.of[index_of(o.value)] : outputs_[i]);
      if (o.kind == OutputKind::state)
        b_.update(made_[index_of(o.updates)].value, v);
      else
        b_.output(v, o.kind, o.name);
    }
    return b_.finish();
  }

 private:
  struct Form {
    Placement placement;
    Value value;
  };

  TensorType local(const TensorType& t, Placement p) const { return part_type(t, p, mesh_); }

  ShardParams shard_params(Placement p, const TensorType& result) const {
    return {mesh_.ranks, p.axis, p.units, result.shape[p.axis]};
  }

  // The value as it was made; added up at once where the label says so.
  void set(ValueId v, Placement made, Value now) {
    const Placement label = labels_.of[index_of(v)];
    made_[index_of(v)] = {made, now};
    if (made.is_partial() && !label.is_partial()) forms_[{v, label}] = sum_of(now, label);
  }

  Value sum_of(Value partial, Placement want) const {
    if (want.is_replicated()) return all_reduce(partial, mesh_.ranks);
    return reduce_scatter(partial, shard_params(want, local(partial.type(), want)));
  }

  Value rank() {
    if (!rank_.valid()) rank_ = b_.input({DType::i32, {}}, InputKind::step, "rank");
    return rank_;
  }

  Values append(const Node& n, const Placements& in, const Placements& out) {
    Values args;
    Types ins, outs;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      args.push_back(to(n.inputs[i], in[i]));
      ins.push_back(args.back().type());
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) outs.push_back(local(g_.type(n.outputs[i]), out[i]));
    const Values now = b_.add(*n.op, args, n.op->resized ? n.op->resized(ins, outs, n.params.get()) : n.params);
    for (size_t i = 0; i < now.size(); ++i)
      LATHE_CHECK(now[i].type() == outs[i], "{}: expected {} of its part, got {}", n.op->name(), to_string(outs[i]),
                  to_string(now[i].type()));
    return now;
  }

  void add(const Node& n, const PlacementRow& row) {
    const InPlaceOf place(b_, n);
    direction_ = direction_of(n);
    const Values now = append(n, row.in, row.out);
    for (size_t i = 0; i < now.size(); ++i) set(n.outputs[i], row.out[i], now[i]);
    // New state is put together at once: its parts need not wait for the end of the step.
    direction_ = Direction::update;
    for (const ValueId v : n.outputs)
      if (gathered_.contains(v)) whole(v, labels_.of[index_of(v)]);
  }

  Value to(ValueId v, Placement want) {
    const Placement has = labels_.of[index_of(v)];
    if (want.is_replicated() && has.is_split()) return whole(v, has);
    if (const Form& made = made_[index_of(v)]; made.value.valid() && made.placement == want) return made.value;
    const auto other = forms_.find({v, want});
    if (other != forms_.end()) return other->second;
    Value now;
    if (want.is_partial())
      now = zero_[index_of(v)] ? to(v, kReplicated) : of_first_rank(to(v, kReplicated));
    else if (has.is_partial())
      now = sum_of(to(v, has), want);
    else
      now = part_of_whole(v, want);
    return forms_[{v, want}] = now;
  }

  // What is split by samples is gathered once; state once for each direction.
  Value whole(ValueId v, Placement has) {
    Value& now = whole_[{v, has.of_state ? direction_ : Direction::forward}];
    if (!now.valid()) now = all_gather(to(v, has), shard_params(has, g_.type(v)));
    return now;
  }

  // A part of what every rank has. Constants and what is repeated along the axis are made smaller instead.
  Value part_of_whole(ValueId v, Placement want) {
    if (const auto row = smaller(v, want)) {
      const Node& n = g_.nodes[static_cast<size_t>(def_[index_of(v)])];
      const InPlaceOf place(b_, n);
      return append(n, row->in, row->out)[0];
    }
    return local_slice(to(v, kReplicated), rank(), shard_params(want, local(g_.type(v), want)));
  }

  // The row by which a node that only moves elements gives a part out of parts that are had in the same way.
  std::optional<PlacementRow> smaller(ValueId v, Placement want, int depth = 8) const {
    if (def_[index_of(v)] < 0 || depth == 0) return std::nullopt;
    const Node& n = g_.nodes[static_cast<size_t>(def_[index_of(v)])];
    const bool moves = (n.op->has(kExact) || n.op->has(kView)) && !n.op->has(kRandom) && !n.op->has(kOrdered);
    if (!moves || !n.op->placements || n.outputs.size() != 1) return std::nullopt;
    const Types ins = g_.types_of(n.inputs), outs = g_.types_of(n.outputs);
    const auto is_had = [&](ValueId in, Placement p) {
      const Placement has = labels_.of[index_of(in)];
      if (p == has) return !p.is_partial();
      return p.is_split() && has.is_replicated() && can_split(g_.type(in), p) && smaller(in, p, depth - 1);
    };
    for (const PlacementRow& any : n.op->placements(ins, outs, n.params.get())) {
      PlacementRow row = with_units_of(want, any);
      bool all = row.out[0] == want;
      for (size_t i = 0; all && i < row.in.size(); ++i) all = is_had(n.inputs[i], row.in[i]);
      if (all) return row;
    }
    return std::nullopt;
  }

  Value of_first_rank(Value x) {
    const Value first = equal(rank(), constant_like(rank(), 0));
    return select(first, x, constant_like(x, 0));
  }

  const Graph& g_;
  const Labels& labels_;
  const Mesh mesh_;
  const Placements& outputs_;
  std::set<ValueId> gathered_;  // state that leaves the graph whole and is made in parts
  Builder b_;
  std::vector<int32_t> def_;
  std::vector<bool> zero_;
  std::vector<Form> made_;                                // by value: as it was made
  std::map<std::pair<ValueId, Placement>, Value> forms_;  // what was made of it
  std::map<std::pair<ValueId, Direction>, Value> whole_;  // of what is split
  Direction direction_ = Direction::forward;
  Value rank_;
};

}  // namespace

Graph divide(const Graph& g, const Labels& labels, const Mesh& mesh, const Placements& inputs,
             const Placements& outputs) {
  return Division(g, labels, mesh, inputs, outputs).finish();
}

}  // namespace lathe
