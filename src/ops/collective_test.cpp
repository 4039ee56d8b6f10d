#include "ops/collective.h"

#include <gtest/gtest.h>

#include "base/part.h"
#include "ir/interpret.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

constexpr DType kF = DType::f32;
using Tensors = std::vector<HostTensor>;

// The op on [size, 2] or its parts, of each of three ranks.
Graph one_op(int rank, const OpDef& op, bool splits, bool joins) {
  const int64_t samples = 7, own = part_of(samples, 3, rank).size();
  Builder b("g");
  const Value x = b.input({kF, {joins ? own : samples, 2}}, InputKind::batch, "x");
  const ShardParams p{3, 0, samples, splits ? own : samples};
  const Value y = &op == &all_reduce_op   ? all_reduce(x, 3)
                  : &op == &all_gather_op ? all_gather(x, p)
                                          : reduce_scatter(x, p);
  b.output(y, OutputKind::result, "y");
  return b.finish();
}

std::vector<Tensors> run(const OpDef& op, bool splits, bool joins) {
  std::vector<Graph> graphs;
  std::vector<Tensors> inputs;
  std::vector<const Graph*> all;
  for (int r = 0; r < 3; ++r) graphs.push_back(one_op(r, op, splits, joins));
  for (int r = 0; r < 3; ++r) {
    all.push_back(&graphs[static_cast<size_t>(r)]);
    const TensorType& t = graphs[static_cast<size_t>(r)].type(0);
    HostTensor x{t, {}};
    for (int64_t i = 0; i < t.numel(); ++i) x.data.push_back(static_cast<double>(100 * r + i));
    inputs.push_back({std::move(x)});
  }
  return interpret_ranks(all, inputs, Precision::exact);
}

TEST(Collective, AllReduce) {
  for (const Tensors& rank : run(all_reduce_op, false, false))
    for (size_t i = 0; i < 14; ++i) EXPECT_EQ(rank[0].data[i], 300.0 + 3.0 * static_cast<double>(i));
}

TEST(Collective, AllGather) {
  const std::vector<double> expected{0, 1, 2, 3, 4, 5, 100, 101, 102, 103, 200, 201, 202, 203};
  for (const Tensors& rank : run(all_gather_op, false, true)) EXPECT_EQ(rank[0].data, expected);
}

TEST(Collective, ReduceScatter) {
  const auto out = run(reduce_scatter_op, true, false);
  for (int r = 0; r < 3; ++r) {
    const Part part = part_of(7, 3, r);
    const HostTensor& y = out[static_cast<size_t>(r)][0];
    ASSERT_EQ(y.type, (TensorType{kF, {part.size(), 2}}));
    for (size_t i = 0; i < y.data.size(); ++i)
      EXPECT_EQ(y.data[i], 300.0 + 3.0 * static_cast<double>(2 * static_cast<size_t>(part.first) + i));
  }
}

// Several tensors in one go: each its own sum, and the gradients likewise.
TEST(Collective, AllReduceOfSeveral) {
  std::vector<Graph> graphs;
  std::vector<Tensors> inputs;
  for (int r = 0; r < 3; ++r) {
    Builder b("g");
    const Value x = b.input({kF, {2, 2}}, InputKind::batch, "x"), y = b.input({kF, {}}, InputKind::batch, "y");
    const Values in{x, y}, sums = all_reduce(in, 3), dy{x * 2.0, Value()};
    for (const Value& s : sums) b.output(s, OutputKind::result, fmt::format("s{}", s.id()));
    const Vjp v{b, in, sums, dy};
    const AllReduceParams p{3};
    for (const Value& d : all_reduce_op.vjp(v, &p)) b.output(d, OutputKind::result, fmt::format("d{}", d.id()));
    graphs.push_back(b.finish());
    const double at = r + 1;
    inputs.push_back({{{kF, {2, 2}}, {at, 2 * at, 3 * at, 4 * at}}, {{kF, {}}, {100 * at}}});
  }
  const Graph* const all[] = {&graphs[0], &graphs[1], &graphs[2]};
  for (const Tensors& rank : interpret_ranks(all, inputs, Precision::exact)) {
    EXPECT_EQ(rank[0].data, (std::vector<double>{6, 12, 18, 24}));
    EXPECT_EQ(rank[1].data, (std::vector<double>{600}));
    EXPECT_EQ(rank[2].data, (std::vector<double>{12, 24, 36, 48}));
    EXPECT_EQ(rank[3].data, (std::vector<double>{0}));  // nothing flows back
  }
}

TEST(Collective, CostsAreThoseOfRings) {
  const Types one{{kF, {10000}}}, two{{kF, {6000}}, {kF, {4000}}};
  const AllReduceParams p{4};
  for (const Types& t : {one, two}) {
    const Cost c = all_reduce_op.cost(t, t, &p);
    EXPECT_EQ(c.bytes_sent, 60000);
    EXPECT_EQ(c.turns, 6);
    EXPECT_EQ(c.flops, 7500);
  }
  const ShardParams s{4, 0, 10000, 10000};
  const Cost gather = all_gather_op.cost(Types{{kF, {2500}}}, one, &s);
  EXPECT_EQ(gather.bytes_sent, 30000);
  EXPECT_EQ(gather.turns, 3);
}

// What is small is exchanged whole, by doubling: all of it, as it is, in few turns.
TEST(Collective, SmallSumsAreDoubled) {
  struct Case {
    int64_t ranks;
    double turns, times;  // that the buffer is sent
  };
  for (const Case& c : {Case{1, 0, 0}, {2, 1, 1}, {3, 3, 2}, {4, 2, 2}, {7, 4, 3}, {1024, 10, 10}}) {
    const AllReduceParams p{c.ranks};
    for (const Types& t : {Types{{kF, {2048}}}, Types{{kF, {1000}}, {kF, {1048}}}}) {
      const Cost cost = all_reduce_op.cost(t, t, &p);
      EXPECT_EQ(cost.turns, c.turns) << c.ranks;
      EXPECT_EQ(cost.bytes_sent, 8192 * c.times) << c.ranks;
      EXPECT_EQ(cost.flops, 2048 * c.times) << c.ranks;
    }
  }
  const AllReduceParams p{1024};
  const Types more{{kF, {2049}}};
  EXPECT_EQ(all_reduce_op.cost(more, more, &p).turns, 2046);
}

TEST(Collective, TensorsOfOneTypeOnly) {
  const AllReduceParams p{2};
  EXPECT_THROW(all_reduce_op.infer(Types{{kF, {2}}, {DType::i32, {2}}}, &p), UserError);
  EXPECT_THROW(all_reduce_op.infer(Types{{DType::b8, {2}}}, &p), UserError);
}

std::string error_of(const Graph& a, const Graph& b) {
  const auto inputs = [](const Graph& g) {
    Tensors out;
    for (const Input& in : g.inputs)
      out.push_back({g.type(in.value), std::vector<double>(static_cast<size_t>(g.type(in.value).numel()))});
    return out;
  };
  const Graph* const graphs[] = {&a, &b};
  try {
    interpret_ranks(graphs, {inputs(a), inputs(b)}, Precision::exact);
  } catch (const UserError& e) {
    return e.what();
  }
  return "none";
}

TEST(Collective, DeadlocksAreNamed) {
  const auto graph = [](bool sum, int64_t size) {
    Builder b("g");
    const Value x = b.input({kF, {size}}, InputKind::batch, "x");
    const Origin layer(b, "fc1");
    b.output(sum ? all_reduce(x, 2) : x, OutputKind::result, "y");
    return b.finish();
  };
  EXPECT_EQ(error_of(graph(true, 3), graph(false, 3)),
            "ranks wait for each other for ever: rank 0 waits in all_reduce of \"fc1\", rank 1 has come to its end");
  EXPECT_EQ(error_of(graph(true, 3), graph(true, 4)), "all_reduce: rank 0 has f32[3], rank 1 has f32[4]");
  EXPECT_EQ(error_of(graph(true, 3), graph(true, 3)), "none");
}

}  // namespace
}  // namespace lathe
