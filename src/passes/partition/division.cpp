#include "passes/partition/division.h"

#include <algorithm>
#include <limits>

#include "ir/builder.h"
#include "ops/collective.h"
#include "ops/elementwise.h"
#include "ops/expand_nodes.h"
#include "ops/full.h"
#include "passes/dce.h"

namespace lathe {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

size_t of(ValueId v) { return static_cast<size_t>(v); }

// Zero whatever the inputs are: of such a value every placement is true.
std::vector<bool> zeros_of(const Graph& g) {
  std::vector<bool> zero(g.types.size(), false);
  for (const Node& n : g.nodes) {
    const bool is_full = n.op == &full_op && n.get<FullParams>().value == 0;
    const bool follows = n.inputs.size() == 1 && zero[of(n.inputs[0])] &&
                         (n.is("broadcast") || n.is("reshape") || n.is("transpose") || n.is("slice") || n.is("cast"));
    if (is_full || follows) zero[of(n.outputs[0])] = true;
  }
  return zero;
}

// Bytes that it takes to have a value lie in another way.
double bytes_between(const TensorType& type, Placement from, Placement to, bool zero) {
  if (from == to || (from.is_replicated() && to.is_split())) return 0;
  const auto bytes = static_cast<double>(type.bytes());
  if (to.is_partial()) return zero && from.is_replicated() ? 0 : kNever;
  return from.is_partial() && to.is_replicated() ? 2 * bytes : bytes;
}

bool can_split(const TensorType& type, Placement p, int64_t samples) {
  return !p.is_split() ||
         (samples > 0 && p.axis < type.shape.ndim() && type.shape[p.axis] > 0 && type.shape[p.axis] % samples == 0);
}

PlacementRow replicated(const Node& n) {
  return {Placements(n.inputs.size(), kReplicated), Placements(n.outputs.size(), kReplicated)};
}

// The op by itself as a graph, all composites expanded.
Graph expansion(const OpDef& op, const ParamsPtr& params, const Types& in) {
  Builder b(std::string(op.name()));
  Values args;
  for (const TensorType& t : in) args.push_back(b.input(t, InputKind::batch, fmt::format("x{}", args.size())));
  const Values out = b.add(op, args, params);
  for (size_t i = 0; i < out.size(); ++i) b.output(out[i], OutputKind::result, fmt::format("y{}", i));
  return dce(expand_where(b.finish(), [](const Graph&, const Node&) { return true; }), {});
}

// Numbers for what values are: equal numbers, equal expressions of the inputs. Over several graphs.
class Expressions {
 public:
  std::vector<int> of_outputs(const Graph& g) {
    std::vector<int> number(g.types.size(), -1);
    for (size_t i = 0; i < g.inputs.size(); ++i)
      number[of(g.inputs[i].value)] =
          find(fmt::format("{} {}", g.inputs[i].name, to_string(g.type(g.inputs[i].value))));
    for (const Node& n : g.nodes) {
      std::string text = fmt::format("{} {}", n.op->name(), to_string(n.op->to_attrs(n.params.get())));
      for (ValueId v : n.inputs) text += fmt::format(" {}", number[of(v)]);
      for (size_t k = 0; k < n.outputs.size(); ++k) number[of(n.outputs[k])] = find(fmt::format("{} : {}", text, k));
    }
    std::vector<int> out;
    for (const Output& o : g.outputs) out.push_back(number[of(o.value)]);
    return out;
  }

 private:
  int find(const std::string& text) { return numbers_.emplace(text, static_cast<int>(numbers_.size())).first->second; }
  std::map<std::string, int> numbers_;
};

// One attempt to label a graph; `early`: values that are added up where they are made.
class Labelling {
 public:
  Labelling(const Graph& g, int64_t samples, const Placements& inputs, CompositeRows& composites,
            const std::set<ValueId>& early)
      : g_(g), samples_(samples), composites_(composites), early_(early), zero_(zeros_of(g)) {
    labels_.of.resize(g.types.size());
    for (size_t i = 0; i < g.inputs.size(); ++i) place(g.inputs[i].value, inputs[i]);
    for (const Node& n : g.nodes) add(n);
  }

  void want(ValueId v, Placement to) {
    const double bytes = bytes_between(g_.type(v), labels_.of[of(v)], to, zero_[of(v)]);
    if (labels_.of[of(v)].is_partial() && to.is_replicated()) summed_.insert(v);
    // A partial output of a replicated value: the first rank's alone.
    if (bytes < kNever && counted_.emplace(v, to).second) labels_.bytes += bytes;
  }
  Labels take() { return std::move(labels_); }
  const std::set<ValueId>& summed() const { return summed_; }  // partial values that some reader wants whole

 private:
  void place(ValueId v, Placement p) {
    if (p.is_partial() && early_.contains(v)) {
      labels_.bytes += bytes_between(g_.type(v), p, kReplicated, false);
      p = kReplicated;
    }
    labels_.of[of(v)] = p;
  }

  // Bytes to give a node the inputs of a row; infinite: it cannot be had. Only what is split already is a reason to
  // split: an axis of a weight may be a multiple of the samples by chance.
  double cost(const Node& n, const PlacementRow& row) const {
    double bytes = 0;
    bool wanted = false, has = false;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const ValueId v = n.inputs[i];
      wanted = wanted || row.in[i].is_split();
      has = has || (row.in[i].is_split() && labels_.of[of(v)] == row.in[i]);
      if (!can_split(g_.type(v), row.in[i], samples_)) return kNever;
      bytes += bytes_between(g_.type(v), labels_.of[of(v)], row.in[i], zero_[of(v)]);
    }
    for (size_t i = 0; i < n.outputs.size(); ++i)
      if (!can_split(g_.type(n.outputs[i]), row.out[i], samples_)) return kNever;
    return wanted && !has ? kNever : bytes;
  }

  void add(const Node& n) {
    Placements in;
    bool divided = false;
    for (ValueId v : n.inputs) {
      in.push_back(labels_.of[of(v)]);
      divided = divided || !in.back().is_replicated();
    }
    PlacementRow best = replicated(n);
    bool open = false;
    if (divided && n.op->is_composite() && !n.op->placements) {
      const CompositeRows::Entry& found = composites_.find(g_, n, in);
      best = found.row;
      open = !found.whole;
      if (open) labels_.bytes += found.bytes;
    } else if (divided && n.op->placements) {
      const Types ins = g_.types_of(n.inputs), outs = g_.types_of(n.outputs);
      double least = cost(n, best);
      for (PlacementRow& row : n.op->placements(ins, outs, n.params.get()))
        if (const double bytes = cost(n, row); bytes < least) {
          least = bytes;
          best = std::move(row);
        }
    }
    if (!open)
      for (size_t i = 0; i < n.inputs.size(); ++i) want(n.inputs[i], best.in[i]);
    for (size_t i = 0; i < n.outputs.size(); ++i) place(n.outputs[i], best.out[i]);
    labels_.rows.push_back(std::move(best));
    labels_.open.push_back(open);
  }

  const Graph& g_;
  int64_t samples_;
  CompositeRows& composites_;
  const std::set<ValueId>& early_;
  std::vector<bool> zero_;
  Labels labels_;
  std::set<ValueId> summed_;
  std::set<std::pair<ValueId, Placement>> counted_;
};

// The new graph while it is built.
class Division {
 public:
  Division(const Graph& g, const Labels& labels, const Mesh& mesh, int64_t samples, const Placements& inputs)
      : g_(g),
        labels_(labels),
        mesh_(mesh),
        samples_(samples),
        part_(samples > 0 ? part_of(samples, mesh.ranks, mesh.rank) : Part{}),
        b_(g.name),
        def_(definitions(g)),
        zero_(zeros_of(g)) {
    std::vector<ValueId> made;
    for (size_t i = 0; i < g.inputs.size(); ++i) {
      const Input& in = g.inputs[i];
      made.push_back(b_.input(local(g.type(in.value), inputs[i]), in.kind, in.name).id());
    }
    for (size_t i = 0; i < g.inputs.size(); ++i) set(g.inputs[i].value, inputs[i], b_.value(made[i]));
    for (size_t i = 0; i < g.nodes.size(); ++i) add(g.nodes[i], labels.rows[i]);
  }

  Graph finish(const Placements& outputs) {
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      const Output& o = g_.outputs[i];
      const Value v = to(o.value, outputs.empty() ? labels_.of[of(o.value)] : outputs[i]);
      if (o.kind == OutputKind::state)
        b_.update(forms_.at({o.updates, first_form_.at(o.updates)}), v);
      else
        b_.output(v, o.kind, o.name);
    }
    return b_.finish();
  }

 private:
  TensorType local(const TensorType& t, Placement p) const {
    if (!p.is_split()) return t;
    return {t.dtype, t.shape.with_dim(p.axis, t.shape[p.axis] / samples_ * part_.size())};
  }

  ShardParams shard_params(int axis, int64_t size) const { return {mesh_.ranks, axis, samples_, size}; }

  // The value as it was made; added up at once where the label says so.
  void set(ValueId v, Placement made, Value now) {
    first_form_[v] = made;
    forms_[{v, made}] = now;
    if (made.is_partial() && labels_.of[of(v)].is_replicated()) forms_[{v, kReplicated}] = all_reduce(now, mesh_.ranks);
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
    const Values now = append(n, row.in, row.out);
    for (size_t i = 0; i < now.size(); ++i) set(n.outputs[i], row.out[i], now[i]);
  }

  Value to(ValueId v, Placement want) {
    const Placement has = labels_.of[of(v)];
    const auto made = forms_.find({v, want});
    if (made != forms_.end()) return made->second;
    Value now;
    const TensorType& type = g_.type(v);
    if (want.is_replicated())
      now = has.is_partial() ? all_reduce(to(v, has), mesh_.ranks)
                             : all_gather(to(v, has), shard_params(has.axis, type.shape[has.axis]));
    else if (want.is_partial())
      now = zero_[of(v)] ? to(v, kReplicated) : of_first_rank(to(v, kReplicated));
    else if (has.is_partial())
      now = reduce_scatter(to(v, has), shard_params(want.axis, local(type, want).shape[want.axis]));
    else
      now = part_of_whole(v, want);
    return forms_[{v, want}] = now;
  }

  // A part of what every rank has. Constants and what is repeated along the axis are made smaller instead.
  Value part_of_whole(ValueId v, Placement want) {
    if (const auto row = smaller(v, want)) {
      const Node& n = g_.nodes[static_cast<size_t>(def_[of(v)])];
      const InPlaceOf place(b_, n);
      return append(n, row->in, row->out)[0];
    }
    const TensorType part = local(g_.type(v), want);
    return local_slice(to(v, kReplicated), rank(), shard_params(want.axis, part.shape[want.axis]));
  }

  // The row by which a node that only moves elements gives a part out of parts that are had in the same way.
  std::optional<PlacementRow> smaller(ValueId v, Placement want, int depth = 8) const {
    if (def_[of(v)] < 0 || depth == 0) return std::nullopt;
    const Node& n = g_.nodes[static_cast<size_t>(def_[of(v)])];
    const bool moves = (n.op->has(kExact) || n.op->has(kView)) && !n.op->has(kRandom) && !n.op->has(kOrdered);
    if (!moves || !n.op->placements || n.outputs.size() != 1) return std::nullopt;
    const Types ins = g_.types_of(n.inputs), outs = g_.types_of(n.outputs);
    const auto is_had = [&](ValueId in, Placement p) {
      const Placement has = labels_.of[of(in)];
      if (p == has) return !p.is_partial();
      return p.is_split() && has.is_replicated() && can_split(g_.type(in), p, samples_) && smaller(in, p, depth - 1);
    };
    for (PlacementRow& row : n.op->placements(ins, outs, n.params.get())) {
      bool all = row.out[0] == want;
      for (size_t i = 0; all && i < row.in.size(); ++i) all = is_had(n.inputs[i], row.in[i]);
      if (all) return std::move(row);
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
  const int64_t samples_;
  const Part part_;
  Builder b_;
  std::vector<int32_t> def_;
  std::vector<bool> zero_;
  std::map<std::pair<ValueId, Placement>, Value> forms_;
  std::map<ValueId, Placement> first_form_;
  Value rank_;
};

}  // namespace

CompositeRows::Entry CompositeRows::look(const Node& n, const Types& ins, const Graph& whole, const Placements& in) {
  const Labels labels = label(whole, samples_, in, {}, *this);
  Entry entry{{in, {}}, labels.bytes, false};
  for (const Output& o : whole.outputs) entry.row.out.push_back(labels.of[of(o.value)]);
  if (entry.bytes > 0) return entry;
  try {
    const Graph divided = dce(divide(whole, labels, mesh_, samples_, in, {}), {});
    Types local_in, local_out;
    for (const Input& i : divided.inputs) local_in.push_back(divided.type(i.value));
    for (const Output& o : divided.outputs) local_out.push_back(divided.type(o.value));
    if (local_in.size() != ins.size()) return entry;  // it needs to know its rank
    const ParamsPtr params = n.op->resized ? n.op->resized(local_in, local_out, n.params.get()) : n.params;
    Expressions numbers;
    entry.whole = numbers.of_outputs(divided) == numbers.of_outputs(expansion(*n.op, params, local_in));
  } catch (const UserError&) {  // the op does not take such sizes
  }
  return entry;
}

const CompositeRows::Entry& CompositeRows::find(const Graph& g, const Node& n, const Placements& in) {
  const Types ins = g.types_of(n.inputs);
  std::string key = fmt::format("{} {}", n.op->name(), to_string(n.op->to_attrs(n.params.get())));
  for (size_t i = 0; i < in.size(); ++i) key += fmt::format(" {} {}", to_string(ins[i]), to_string(in[i]));
  const auto [place, fresh] = entries_.emplace(key, Entry{});
  if (!fresh) return place->second;
  const Graph whole = expansion(*n.op, n.params, ins);
  place->second = look(n, ins, whole, in);
  if (place->second.whole) return place->second;
  // Whoever has the whole has its parts: the same with what every rank has of the samples, divided.
  Placements parts = in;
  for (size_t i = 0; i < in.size(); ++i)
    if (in[i].is_replicated() && can_split(ins[i], split_along(0), samples_)) parts[i] = split_along(0);
  if (parts != in)
    if (Entry other = look(n, ins, whole, parts); other.whole) place->second = std::move(other);
  return place->second;
}

Labels label(const Graph& g, int64_t samples, const Placements& inputs, const Placements& outputs,
             CompositeRows& composites) {
  std::set<ValueId> early;
  for (;;) {
    Labelling one(g, samples, inputs, composites, early);
    for (size_t i = 0; i < outputs.size(); ++i) one.want(g.outputs[i].value, outputs[i]);
    // What one reader wants whole is whole for all: it is added up once, and not again in what others make of it.
    const size_t before = early.size();
    std::set<ValueId> summed = one.summed();
    early.merge(summed);
    if (early.size() == before) return one.take();
  }
}

Graph divide(const Graph& g, const Labels& labels, const Mesh& mesh, int64_t samples, const Placements& inputs,
             const Placements& outputs) {
  return Division(g, labels, mesh, samples, inputs).finish(outputs);
}

}  // namespace lathe
