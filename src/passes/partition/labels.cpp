#include "passes/partition/labels.h"

#include <algorithm>
#include <limits>
#include <set>

#include "ir/builder.h"
#include "ops/expand_nodes.h"
#include "ops/full.h"
#include "passes/dce.h"
#include "passes/partition/division.h"

namespace lathe {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

bool is_of_samples(Placement p) { return p.is_split() && !p.of_state; }
bool is_of_state(Placement p) { return p.is_split() && p.of_state; }

// Bytes that it takes to have a value lie in another way.
double bytes_between(const TensorType& type, Placement from, Placement to, bool zero) {
  if (from == to || (from.is_replicated() && to.is_split())) return 0;
  const auto bytes = static_cast<double>(type.bytes());
  if (to.is_partial()) return zero && from.is_replicated() ? 0 : kNever;
  return from.is_partial() && to.is_replicated() ? 2 * bytes : bytes;
}

PlacementRow replicated(const Node& n) {
  return {Placements(n.inputs.size(), kReplicated), Placements(n.outputs.size(), kReplicated)};
}

bool has_split(const PlacementRow& row) {
  const auto is_split = [](Placement p) { return p.is_split(); };
  return std::ranges::any_of(row.in, is_split) || std::ranges::any_of(row.out, is_split);
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
      number[index_of(g.inputs[i].value)] =
          find(fmt::format("{} {}", g.inputs[i].name, to_string(g.type(g.inputs[i].value))));
    for (const Node& n : g.nodes) {
      std::string text = fmt::format("{} {}", n.op->name(), to_string(n.op->to_attrs(n.params.get())));
      for (ValueId v : n.inputs) text += fmt::format(" {}", number[index_of(v)]);
      for (size_t k = 0; k < n.outputs.size(); ++k)
        number[index_of(n.outputs[k])] = find(fmt::format("{} : {}", text, k));
    }
    std::vector<int> out;
    for (const Output& o : g.outputs) out.push_back(number[index_of(o.value)]);
    return out;
  }

 private:
  int find(const std::string& text) { return numbers_.emplace(text, static_cast<int>(numbers_.size())).first->second; }
  std::map<std::string, int> numbers_;
};

// By value: the split in which an output wants it, through ops that give each element of their result from one of their
// input. Replicated: in none.
Placements wanted_splits(const Graph& g, const Placements& outputs) {
  Placements wanted(g.types.size());
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].is_split() && outputs[i].of_state) wanted[index_of(g.outputs[i].value)] = outputs[i];
  for (size_t k = g.nodes.size(); k-- > 0;) {
    const Node& n = g.nodes[k];
    if (n.outputs.size() != 1 || !wanted[index_of(n.outputs[0])].is_split() || !n.op->placements) continue;
    if (n.op->has(kOrdered) || !(n.op->has(kElementwise) || n.op->has(kView) || n.op->has(kExact))) continue;
    const Placement out = wanted[index_of(n.outputs[0])];
    const Types ins = g.types_of(n.inputs), outs = g.types_of(n.outputs);
    for (const PlacementRow& any : n.op->placements(ins, outs, n.params.get())) {
      const PlacementRow row = with_units_of(out, any);
      if (row.out[0] != out) continue;
      for (size_t i = 0; i < row.in.size(); ++i)
        if (row.in[i].is_split() && can_split(ins[i], row.in[i]) && !wanted[index_of(n.inputs[i])].is_split())
          wanted[index_of(n.inputs[i])] = row.in[i];
      break;
    }
  }
  return wanted;
}

// One attempt to label a graph; `early`: partial values that are added up where they are made, and how they lie then.
class Labelling {
 public:
  Labelling(const Graph& g, const Placements& inputs, const Placements& wanted, CompositeRows& composites,
            const std::map<ValueId, Placement>& early)
      : g_(g), wanted_(wanted), composites_(composites), early_(early), zero_(zeros_of(g)) {
    labels_.of.resize(g.types.size());
    for (size_t i = 0; i < g.inputs.size(); ++i) place(g.inputs[i].value, inputs[i]);
    for (const Node& n : g.nodes) add(n);
  }

  void want(ValueId v, Placement to) {
    const double bytes = bytes_between(g_.type(v), labels_.of[index_of(v)], to, zero_[index_of(v)]);
    if (labels_.of[index_of(v)].is_partial()) {
      if (to.is_replicated()) summed_[v] = kReplicated;
      if (to.is_split() && to == wanted_[index_of(v)]) summed_.emplace(v, to);
    }
    // A partial output of a replicated value: the first rank's alone.
    if (bytes > 0 && bytes < kNever && counted_.emplace(v, to).second) labels_.bytes += bytes;
  }
  Labels take() { return std::move(labels_); }
  // Partial values that some reader wants whole, or in the split that an output wants.
  const std::map<ValueId, Placement>& summed() const { return summed_; }

 private:
  void place(ValueId v, Placement p) {
    if (const auto sum = p.is_partial() ? early_.find(v) : early_.end(); sum != early_.end()) {
      labels_.bytes += bytes_between(g_.type(v), p, sum->second, false);
      p = sum->second;
    }
    labels_.of[index_of(v)] = p;
  }

  // Bytes to give a node the inputs of a row; infinite: it cannot be had. Only what is split already, or is about to
  // be, is a reason to split: an axis of a weight may be a multiple of the samples by chance.
  double cost(const Node& n, const PlacementRow& row) const {
    double bytes = 0, from = 0;
    bool wanted = false, has = false;
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      const ValueId v = n.inputs[i];
      const Placement p = row.in[i], now = labels_.of[index_of(v)];
      if (!can_split(g_.type(v), p)) return kNever;
      wanted = wanted || p.is_split();
      if (p.is_split() && (now == p || (now.is_partial() && wanted_[index_of(v)] == p))) {
        has = true;
        from += static_cast<double>(g_.type(v).bytes());
      }
      bytes += bytes_between(g_.type(v), now, p, zero_[index_of(v)]);
    }
    for (size_t i = 0; i < n.outputs.size(); ++i) {
      const TensorType& type = g_.type(n.outputs[i]);
      if (!can_split(type, row.out[i])) return kNever;
      // State is gathered before it grows: a bias before it is repeated for each sample.
      if (is_of_state(row.out[i]) && wanted_[index_of(n.outputs[i])] != row.out[i] &&
          static_cast<double>(type.bytes()) > from)
        return kNever;
    }
    return wanted && !has ? kNever : bytes;
  }

  // Splits whose units a row of the node may have: those of its inputs, or that they are about to have. Where there are
  // samples, theirs alone.
  Placements splits_of(const Node& n) const {
    Placements out;
    for (ValueId v : n.inputs) {
      const Placement p = labels_.of[index_of(v)].is_partial() ? wanted_[index_of(v)] : labels_.of[index_of(v)];
      if (is_of_samples(p)) return {p};
      if (p.is_split()) out.push_back(p);
    }
    return out;
  }

  void add(const Node& n) {
    Placements in;
    bool divided = false, samples = false;
    for (ValueId v : n.inputs) {
      in.push_back(labels_.of[index_of(v)]);
      divided = divided || !in.back().is_replicated();
      samples = samples || is_of_samples(in.back());
    }
    PlacementRow best = replicated(n);
    bool open = false;
    if (divided && n.op->is_composite() && !n.op->placements) {
      if (samples)
        for (Placement& p : in)
          if (is_of_state(p)) p = kReplicated;
      const CompositeRows::Entry& found = composites_.find(g_, n, in);
      best = found.row;
      open = !found.whole;
      if (open) labels_.bytes += found.bytes;
    } else if (divided && n.op->placements) {
      best = cheapest(n, std::move(best));
    }
    if (!open)
      for (size_t i = 0; i < n.inputs.size(); ++i) want(n.inputs[i], best.in[i]);
    for (size_t i = 0; i < n.outputs.size(); ++i) place(n.outputs[i], best.out[i]);
    labels_.rows.push_back(std::move(best));
    labels_.open.push_back(open);
  }

  PlacementRow cheapest(const Node& n, PlacementRow best) const {
    double least = cost(n, best);
    const auto consider = [&](PlacementRow row) {
      const double bytes = cost(n, row);
      if (bytes >= least) return;
      least = bytes;
      best = std::move(row);
    };
    const Placements splits = splits_of(n);
    for (const PlacementRow& row : n.op->placements(g_.types_of(n.inputs), g_.types_of(n.outputs), n.params.get())) {
      if (!has_split(row)) consider(row);
      if (has_split(row))
        for (const Placement p : splits) consider(with_units_of(p, row));
    }
    return best;
  }

  const Graph& g_;
  const Placements& wanted_;
  CompositeRows& composites_;
  const std::map<ValueId, Placement>& early_;
  std::vector<bool> zero_;
  Labels labels_;
  std::map<ValueId, Placement> summed_;
  std::set<std::pair<ValueId, Placement>> counted_;
};

}  // namespace

std::vector<bool> zeros_of(const Graph& g) {
  std::vector<bool> zero(g.types.size(), false);
  for (const Node& n : g.nodes) {
    const bool is_full = n.op == &full_op && n.get<FullParams>().value == 0;
    const bool follows = n.inputs.size() == 1 && zero[index_of(n.inputs[0])] &&
                         (n.is("broadcast") || n.is("reshape") || n.is("transpose") || n.is("slice") || n.is("cast"));
    if (is_full || follows) zero[index_of(n.outputs[0])] = true;
  }
  return zero;
}

CompositeRows::Entry CompositeRows::look(const Node& n, const Types& ins, const Graph& whole, const Placements& in) {
  const Labels labels = label(whole, in, {}, *this);
  Entry entry{{in, {}}, labels.bytes, false};
  for (const Output& o : whole.outputs) entry.row.out.push_back(labels.of[index_of(o.value)]);
  if (entry.bytes > 0) return entry;
  try {
    const Graph divided = dce(divide(whole, labels, mesh_, in, {}), {});
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
    if (in[i].is_replicated() && can_split(ins[i], split_along(0, samples_))) parts[i] = split_along(0, samples_);
  if (parts != in)
    if (Entry other = look(n, ins, whole, parts); other.whole) place->second = std::move(other);
  return place->second;
}

Labels label(const Graph& g, const Placements& inputs, const Placements& outputs, CompositeRows& composites) {
  const Placements wanted = wanted_splits(g, outputs);
  std::map<ValueId, Placement> early;
  for (;;) {
    Labelling one(g, inputs, wanted, composites, early);
    for (size_t i = 0; i < outputs.size(); ++i) one.want(g.outputs[i].value, outputs[i]);
    // What one reader wants whole is whole for all, and so it is with a part: it is added up once, and not again in
    // what others make of it.
    bool changed = false;
    for (const auto& [v, to] : one.summed()) {
      const auto [place, fresh] = early.emplace(v, to);
      changed = changed || fresh || (to.is_replicated() && place->second != to);
      if (to.is_replicated()) place->second = to;
    }
    if (!changed) return one.take();
  }
}

}  // namespace lathe
