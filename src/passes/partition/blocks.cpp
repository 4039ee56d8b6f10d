#include "passes/partition/blocks.h"

#include <algorithm>

#include "base/block_tree.h"
#include "ops/collective.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/slice.h"
#include "ops/tree_sum.h"

namespace lathe {
namespace {

class Joining {
 public:
  Joining(const std::vector<Graph>& blocks, const Mesh& mesh, int64_t number)
      : blocks_(blocks),
        mesh_(mesh),
        number_(number),
        own_(part_of(number, mesh.ranks, mesh.rank)),
        b_(blocks[0].name) {
    LATHE_CHECK(static_cast<int64_t>(blocks.size()) == own_.size(), "{} graphs of {} blocks", blocks.size(),
                own_.size());
    for (const Graph& g : blocks) {
      LATHE_CHECK(g.nodes.size() == blocks[0].nodes.size() && g.inputs.size() == blocks[0].inputs.size() &&
                      g.outputs.size() == blocks[0].outputs.size(),
                  "blocks have other nodes");
      now_.emplace_back(g.types.size());
    }
  }

  Graph run(const std::vector<bool>& split) {
    for (size_t i = 0; i < blocks_[0].inputs.size(); ++i) input(i, i < split.size() && split[i]);
    for (size_t i = 0; i < blocks_[0].nodes.size(); ++i) node(i);
    for (size_t i = 0; i < blocks_[0].outputs.size(); ++i) {
      const Output& o = blocks_[0].outputs[i];
      const Values all = of_blocks([&](size_t k) { return blocks_[k].outputs[i].value; });
      LATHE_CHECK(is_one(all), "output {} differs from block to block", o.name);
      if (o.kind == OutputKind::state)
        b_.update(now_[0][of(o.updates)], all[0]);
      else
        b_.output(all[0], o.kind, o.name);
    }
    return b_.finish();
  }

 private:
  static size_t of(ValueId v) { return static_cast<size_t>(v); }

  template <class F>
  Values of_blocks(F&& value) const {
    Values out;
    for (size_t k = 0; k < blocks_.size(); ++k) out.push_back(now_[k][of(value(k))]);
    return out;
  }
  static bool is_one(const Values& all) {
    return std::ranges::all_of(all, [&](const Value& v) { return v.id() == all[0].id(); });
  }

  // Blocks have parts of an input in a row, the same whole, or know which one they are.
  void input(size_t i, bool split) {
    const Input& first = blocks_[0].inputs[i];
    const auto type = [&](size_t k) { return blocks_[k].type(blocks_[k].inputs[i].value); };
    const auto set = [&](size_t k, Value v) { now_[k][of(blocks_[k].inputs[i].value)] = v; };
    if (first.kind == InputKind::step && first.name == "rank") {
      for (size_t k = 0; k < blocks_.size(); ++k)
        set(k, full(b_, type(k), static_cast<double>(own_.first + static_cast<int64_t>(k))));
      return;
    }
    if (!split) {
      const Value whole = b_.input(type(0), first.kind, first.name);
      for (size_t k = 0; k < blocks_.size(); ++k) set(k, whole);
      return;
    }
    int64_t size = 0;
    for (size_t k = 0; k < blocks_.size(); ++k) size += type(k).shape[0];
    const Value all = b_.input({type(0).dtype, type(0).shape.with_dim(0, size)}, first.kind, first.name);
    int64_t at = 0;
    for (size_t k = 0; k < blocks_.size(); ++k) {
      const int64_t own = type(k).shape[0];
      set(k, own == size ? all : slice_axis(all, 0, at, own));
      at += own;
    }
  }

  void node(size_t i) {
    const Node& first = blocks_[0].nodes[i];
    const InPlaceOf place(b_, first);
    const auto set = [&](size_t k, size_t output, Value v) { now_[k][of(blocks_[k].nodes[i].outputs[output])] = v; };
    if (first.op->is_collective()) {
      for (size_t j = 0; j < first.outputs.size(); ++j) {
        const Values in = of_blocks([&](size_t k) { return blocks_[k].nodes[i].inputs[j]; });
        const Values out = collective(i, in);
        for (size_t k = 0; k < blocks_.size(); ++k) set(k, j, out[k]);
      }
      return;
    }
    bool same = true;
    std::vector<Values> args(blocks_.size());
    for (size_t j = 0; j < first.inputs.size(); ++j) {
      const Values in = of_blocks([&](size_t k) { return blocks_[k].nodes[i].inputs[j]; });
      same = same && is_one(in);
      for (size_t k = 0; k < blocks_.size(); ++k) args[k].push_back(in[k]);
    }
    // Parameters may hold sizes of a block's part.
    for (size_t k = 1; same && k < blocks_.size(); ++k) {
      const Node& other = blocks_[k].nodes[i];
      same = other.op->to_attrs(other.params.get()) == first.op->to_attrs(first.params.get());
    }
    Values made;
    for (size_t k = 0; k < blocks_.size(); ++k) {
      const Node& n = blocks_[k].nodes[i];
      LATHE_CHECK(n.op == first.op, "node {} is {} in one block and {} in another", i, first.op->name(), n.op->name());
      if (k == 0 || !same) made = b_.add(*n.op, args[k], n.params);
      for (size_t j = 0; j < made.size(); ++j) set(k, j, made[j]);
    }
  }

  // What blocks get of a collective among all of them.
  Values collective(size_t i, const Values& in) {
    const Node& first = blocks_[0].nodes[i];
    if (first.is("all_reduce")) return Values(blocks_.size(), sum(in));
    const auto params = [&](size_t k) { return blocks_[k].nodes[i].get<ShardParams>(); };
    const ShardParams p = params(0);
    const int axis = static_cast<int>(p.axis);
    const auto part = [&](size_t k, int64_t size) {
      const Part samples = part_of(p.units, number_, own_.first + static_cast<int64_t>(k));
      return Part{samples.first * (size / p.units), samples.last * (size / p.units)};
    };
    Values out;
    if (first.is("all_gather")) {  // the sum of parts between zeros
      for (size_t k = 0; k < blocks_.size(); ++k) {
        const Part own = part(k, p.size);
        Values pieces;
        const auto add_zeros = [&](int64_t size) {
          if (size > 0) pieces.push_back(zeros(b_, {in[k].dtype(), in[k].shape().with_dim(axis, size)}));
        };
        add_zeros(own.first);
        if (own.size() > 0) pieces.push_back(in[k]);
        add_zeros(p.size - own.last);
        out.push_back(concat(pieces, axis));
      }
      return Values(blocks_.size(), sum(out));
    }
    LATHE_CHECK(first.is("reduce_scatter"), "{} among blocks", first.op->name());
    const Value whole = sum(in);
    for (size_t k = 0; k < blocks_.size(); ++k) {
      const Part own = part(k, whole.dim(axis));
      out.push_back(slice_axis(whole, axis, own.first, own.size()));
    }
    return out;
  }

  // Over all blocks of all ranks.
  Value sum(const Values& own) {
    const Part all{0, number_};
    std::vector<Part> single, cut;
    for (int64_t k = own_.first; k < own_.last; ++k) single.push_back({k, k + 1});
    cut_tree(all, own_, cut);
    Values sums;
    for (const Part& p : cut)
      sums.push_back(fold_tree(
          p, single, [&](size_t k) { return own[k]; }, [](Value x, Value y) { return x + y; }));
    return mesh_.ranks == 1 ? sums[0] : tree_sum(sums, {mesh_.ranks, mesh_.rank, number_});
  }

  const std::vector<Graph>& blocks_;
  const Mesh mesh_;
  const int64_t number_;
  const Part own_;
  Builder b_;
  std::vector<Values> now_;  // by block, by its value
};

}  // namespace

Graph join_blocks(const std::vector<Graph>& blocks, const std::vector<bool>& split, const Mesh& mesh, int64_t number) {
  return Joining(blocks, mesh, number).run(split);
}

}  // namespace lathe
