#include "ops/tree_sum.h"

#include "base/block_tree.h"
#include "base/traffic.h"

namespace lathe {
namespace {

struct TreeSum {
  using Params = TreeSumParams;
  static constexpr OpInfo info{.name = "tree_sum",
                               .doc = "the sum over all blocks of all ranks, in an order that does not depend on ranks",
                               .inputs = -1,
                               .traits = kOrdered};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(p.ranks >= 1 && p.rank >= 0 && p.rank < p.ranks && p.blocks >= p.ranks && x[0].dtype != DType::b8,
                     "tree_sum: {} on rank {} of {}, {} blocks", to_string(x[0]), p.rank, p.ranks, p.blocks);
    const size_t wanted = BlockTree(p.blocks, p.ranks).sums_of(p.rank);
    LATHE_USER_CHECK(x.size() == wanted, "tree_sum: expected {} sums on rank {} of {}, got {}", wanted, p.rank, p.ranks,
                     x.size());
    for (const TensorType& t : x)
      LATHE_USER_CHECK(t == x[0], "tree_sum: {} and {} cannot be added", to_string(x[0]), to_string(t));
    return {x[0]};
  }
  // A rank sends to each other one its part of what it has, and all gather the sums of the parts (comm/collectives.h).
  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    Cost c = detail::cost_of_bytes(in, out);
    const Traffic gather = ring_traffic(out[0].bytes(), p.ranks, 1);
    c.turns = 2 * gather.turns;
    c.bytes_sent = gather.bytes * static_cast<double>(in.size() + 1);
    return c;
  }
  static void reference(RefOuts, RefIns, const Params&) {
    throw InternalError("tree_sum needs all ranks: interpret_ranks");
  }
  static void over_ranks(RanksOuts y, RanksIns x, RanksParams<Params> p) {
    LATHE_USER_CHECK(p[0]->ranks == static_cast<int64_t>(x.size()), "tree_sum: expected {} ranks, got {}", p[0]->ranks,
                     x.size());
    const BlockTree tree(p[0]->blocks, p[0]->ranks);
    std::vector<const double*> leaves;
    for (size_t r = 0; r < x.size(); ++r) {
      LATHE_USER_CHECK(
          p[r]->rank == static_cast<int64_t>(r) && p[r]->blocks == p[0]->blocks && x[r][0].type == x[0][0].type,
          "tree_sum: rank 0 adds {} of {} blocks, rank {} {} of {}", to_string(x[0][0].type), p[0]->blocks, r,
          to_string(x[r][0].type), p[r]->blocks);
      for (const RefTensor& t : x[r]) leaves.push_back(t.data);
    }
    for (int64_t i = 0; i < y[0][0].numel(); ++i) {
      const double sum = fold_tree(
          tree.blocks, tree.cut, [&](size_t leaf) { return leaves[leaf][i]; },
          [](double a, double b) { return a + b; });
      for (const auto& rank : y) rank[0][i] = sum;
    }
  }
  static std::vector<Sample> samples() { return {}; }
};

}  // namespace

constinit const OpDef tree_sum_op = make_op<TreeSum>();

Value tree_sum(ArgValues x, const TreeSumParams& p) { return x[0].builder().add1(tree_sum_op, x, p); }

}  // namespace lathe
