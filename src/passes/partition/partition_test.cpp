// Steps divided among ranks: all ranks together compute what the whole graph says.
#include "passes/partition/partition.h"

#include <gtest/gtest.h>

#include "ir/print.h"
#include "ops/batch_norm.h"
#include "ops/broadcast.h"
#include "ops/collective.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "ops/transpose.h"
#include "passes/check/random_graph.h"
#include "passes/check/validate.h"

namespace lathe {
namespace {

constexpr DType kFloat = DType::f32;

Value mean_of(Value x) { return sum_all(x) * (1.0 / static_cast<double>(x.shape().numel())); }

PipelineOptions until(const char* pass) {
  PipelineOptions o;
  o.stop_after = pass;
  return o;
}

size_t count(const Graph& g, const OpDef& op) {
  return static_cast<size_t>(std::ranges::count(g.nodes, &op, &Node::op));
}

Graph partitioned(const Graph& g, int ranks, int rank = 0) {
  PassContext context;
  context.mesh = {ranks, rank};
  return run_pipeline(g, context, until("partition"));
}

// Of 1 to `most` ranks, more than there are samples included.
void expect_same_on_ranks(const StepSet& set, int most = 5, const PassContext& context = {}) {
  for (int ranks = 2; ranks <= most; ++ranks) {
    const PassVerdict verdict = validate_ranks(set, pipeline(), context, ranks);
    EXPECT_TRUE(verdict.ok()) << ranks << " ranks: " << verdict.why;
    EXPECT_FALSE(verdict.passes.empty());
  }
}

// A layer under a loss, and its gradients as updates.
Graph layer_step(int64_t samples, bool norm) {
  Builder b("train");
  const Value x = b.input({kFloat, {samples, 6}}, InputKind::batch, "x"),
              t = b.input({kFloat, {samples, 3}}, InputKind::batch, "t");
  const Value w = b.input({kFloat, {6, 3}}, InputKind::param, "w"),
              bias = b.input({kFloat, {3}}, InputKind::param, "b");
  Value y = matmul(x, w) + bias;
  if (norm) {
    const Value gamma = b.input({kFloat, {3}}, InputKind::param, "gamma"),
                beta = b.input({kFloat, {3}}, InputKind::param, "beta");
    y = batch_norm(y, gamma, beta, 1e-5).y;
  }
  const Value loss = mean_of(square(tanh(y) - t));
  const Value parameters[] = {w, bias};
  const Values slopes = grad(loss, parameters);
  b.output(loss, OutputKind::metric, "loss");
  b.update(w, w - slopes[0] * 0.1);
  b.update(bias, bias - slopes[1] * 0.1);
  return b.finish();
}

TEST(Partition, GradientsAreAddedUpOnceEach) {
  const Graph g = partitioned(layer_step(8, false), 4);
  EXPECT_EQ(count(g, all_reduce_op), 3u);  // two gradients and the loss
  EXPECT_EQ(count(g, all_gather_op), 0u);
  EXPECT_EQ(g.type(g.inputs[0].value), (TensorType{kFloat, {2, 6}}));
  EXPECT_EQ(g.inputs.back().name, "b");  // no graph needs to know its rank
}

// Axes of weights that are multiples of the samples by chance are no samples.
TEST(Partition, WeightsAreNotSplit) {
  const Graph g = partitioned(layer_step(3, false), 3);
  EXPECT_EQ(count(g, all_reduce_op), 3u) << print(g);
  EXPECT_EQ(count(g, all_gather_op) + count(g, reduce_scatter_op) + count(g, local_slice_op), 0u) << print(g);
}

TEST(Partition, OneRankIsTheWhole) {
  const Graph whole = run_pipeline(layer_step(8, false), {}, until("expand"));
  EXPECT_TRUE(structurally_equal(partitioned(layer_step(8, false), 1), whole));
}

TEST(Partition, LayersAgree) {
  for (const int64_t samples : {8, 7, 2, 1}) expect_same_on_ranks(set_of(layer_step(samples, false)));
}

TEST(Partition, BatchNormIsThatOfTheWholeBatch) {
  const Graph g = partitioned(layer_step(8, true), 4);
  EXPECT_EQ(count(g, reduce_scatter_op) + count(g, all_gather_op), 0u) << print(g);
  for (const Node& n : g.nodes)  // statistics and gradients, nothing of the size of the batch
    EXPECT_TRUE(n.op != &all_reduce_op || g.type(n.inputs[0]).numel() <= 18) << n.origin.str();
  for (const int64_t samples : {8, 7, 3}) expect_same_on_ranks(set_of(layer_step(samples, true)));
}

// Every sample meets every other one: what is split is gathered.
TEST(Partition, PairsOfSamplesAgree) {
  for (const int64_t samples : {6, 5}) {
    Builder b("train");
    const Value x = b.input({kFloat, {samples, 4}}, InputKind::batch, "x"),
                w = b.input({kFloat, {4, 3}}, InputKind::param, "w");
    const Value z = tanh(matmul(x, w)), pairs = matmul(z, z, false, true);
    const Value loss = mean_of(exp(pairs) * 0.1);
    b.output(loss, OutputKind::metric, "loss");
    b.output(pairs, OutputKind::result, "pairs");
    b.update(w, w - grad(loss, std::span(&w, 1))[0] * 0.1);
    expect_same_on_ranks(set_of(b.finish()), 4);
  }
}

// Axes that hold several elements of each sample, and samples that are not in front.
TEST(Partition, SamplesMove) {
  Builder b("g");
  const Value x = b.input({kFloat, {6, 4, 5}}, InputKind::batch, "x"),
              w = b.input({kFloat, {5, 3}}, InputKind::param, "w");
  const Value rows = matmul(reshape(x, {24, 5}), w);                        // [24, 3]
  const Value turned = transpose(reshape(rows, {6, 4, 3}), {1, 0, 2});      // [4, 6, 3]
  b.output(reduce_sum(exp(turned), {0}), OutputKind::result, "samples");    // [6, 3]
  b.output(reduce_sum(exp(turned), {1}), OutputKind::result, "positions");  // [4, 3]
  b.output(reshape(turned, {24, 3}), OutputKind::result, "mixed");          // no part of it is a rank's
  b.output(turned + full(b, {kFloat, {4, 6, 3}}, 2), OutputKind::result, "constant");
  expect_same_on_ranks(set_of(b.finish()));
}

// A sum of gradients stays each rank's own until an update reads it.
TEST(Partition, SumsOfGradientsStayPartial) {
  Builder a("accumulate"), u("update");
  const Value x = a.input({kFloat, {6, 4}}, InputKind::batch, "x"),
              w = a.input({kFloat, {4, 3}}, InputKind::param, "w");
  const Value sum = a.input({kFloat, {4, 3}}, InputKind::gradient, "w.grad");
  a.update(sum, sum + grad(mean_of(tanh(matmul(x, w))), std::span(&w, 1))[0]);
  const Value w2 = u.input({kFloat, {4, 3}}, InputKind::param, "w"),
              s2 = u.input({kFloat, {4, 3}}, InputKind::gradient, "w.grad");
  u.update(w2, w2 - s2 * 0.5);
  u.update(s2, full(u, {kFloat, {4, 3}}, 0));
  StepSet set = set_of(a.finish());
  merge(set, set_of(u.finish()));
  expect_same_on_ranks(set, 4);
  PassContext context;
  context.mesh = {4, 0};
  set = run_pipeline(std::move(set), context, until("partition"));
  EXPECT_EQ(count(set.graphs[0], all_reduce_op), 0u) << print(set.graphs[0]);
  EXPECT_EQ(count(set.graphs[1], all_reduce_op), 1u) << print(set.graphs[1]);
}

TEST(Partition, RandomGraphsAgree) {
  int divided = 0;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    RandomGraphOptions o;
    o.kind = static_cast<RandomGraphKind>(seed % 4);
    o.gradient = true;
    const StepSet set = set_of(random_graph(seed, o));
    for (const int ranks : {2, 3}) {
      const PassVerdict verdict = validate_ranks(set, pipeline(), {}, ranks, seed);
      EXPECT_TRUE(verdict.ok()) << "seed " << seed << ", " << ranks << " ranks: " << verdict.why;
      divided += verdict.passes.empty() ? 0 : 1;
    }
  }
  EXPECT_GT(divided, 50);
}

// Planted faults are named.
Graph without_all_reduce(Graph g, const PassContext&) {
  const auto found = std::ranges::find(g.nodes, &all_reduce_op, &Node::op);
  if (found == g.nodes.end()) return g;
  const ValueId before = found->inputs[0], after = found->outputs[0];
  g.nodes.erase(found);
  for (Node& n : g.nodes)
    for (ValueId& v : n.inputs)
      if (v == after) v = before;
  for (Output& o : g.outputs)
    if (o.value == after) o.value = before;
  return g;
}
Graph only_on_others(Graph g, const PassContext& context) {
  return context.mesh.rank == 0 ? without_all_reduce(std::move(g), context) : g;
}
// What `after` makes of the first sum that it wants, for all who read that sum.
template <class After>
Graph after_sum(Graph g, After&& after) {
  Builder b(std::move(g));
  Graph& now = b.mutable_graph();
  for (size_t i = 0; i < now.nodes.size(); ++i) {
    if (now.nodes[i].op != &all_reduce_op) continue;
    const ValueId sum = now.nodes[i].outputs[0];
    const size_t count = now.nodes.size();
    const std::optional<Value> made = after(b, now.nodes[i]);
    if (!made) continue;
    for (size_t k = 0; k < count; ++k)
      for (ValueId& v : now.nodes[k].inputs)
        if (v == sum) v = made->id();
    for (Output& o : now.outputs)
      if (o.value == sum) o.value = made->id();
    std::rotate(now.nodes.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                now.nodes.begin() + static_cast<std::ptrdiff_t>(count), now.nodes.end());
    break;
  }
  return b.finish();
}
Graph averaged(Graph g, const PassContext& context) {
  return after_sum(std::move(g), [&](Builder& b, const Node& n) -> std::optional<Value> {
    return b.value(n.outputs[0]) * (1.0 / context.mesh.ranks);
  });
}
// A weight that is read twice has two gradients: one is summed over the ranks, the other is each rank's own.
Graph half_tied(Graph g, const PassContext&) {
  return after_sum(std::move(g), [](Builder& b, const Node& n) -> std::optional<Value> {
    std::vector<Node>& nodes = b.mutable_graph().nodes;
    const auto made = std::ranges::find_if(
        nodes, [&](const Node& m) { return std::ranges::find(m.outputs, n.inputs[0]) != m.outputs.end(); });
    if (made == nodes.end() || !made->is("add")) return std::nullopt;
    const ValueId first = made->inputs[0], second = made->inputs[1], sum = n.outputs[0];
    nodes[static_cast<size_t>(&n - nodes.data())].inputs[0] = first;
    return b.value(sum) + b.value(second);
  });
}

template <Graph (*fault)(Graph, const PassContext&)>
StepSet wrong_partition(StepSet set, const PassContext& context) {
  return each_graph<fault>(partition(std::move(set), context), context);
}

template <Graph (*fault)(Graph, const PassContext&)>
PassVerdict with_fault(Graph g = layer_step(8, true)) {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  std::ranges::find(passes, "partition", &PassEntry::name)->run = wrong_partition<fault>;
  return validate_ranks(set_of(std::move(g)), passes, {}, 3);
}

TEST(Partition, AMissingSumIsNamed) {
  const PassVerdict verdict = with_fault<without_all_reduce>();
  EXPECT_EQ(verdict.first_bad, "partition") << verdict.why;
}

TEST(Partition, AMeanInsteadOfASumIsNamed) {
  const PassVerdict verdict = with_fault<averaged>();
  EXPECT_EQ(verdict.first_bad, "partition") << verdict.why;
  EXPECT_NE(verdict.why.find("is off by"), std::string::npos) << verdict.why;
}

Graph tied_step() {
  Builder b("train");
  const Value x = b.input({kFloat, {6, 4}}, InputKind::batch, "x"),
              w = b.input({kFloat, {4, 3}}, InputKind::param, "w");
  const Value loss = mean_of(tanh(matmul(tanh(matmul(x, w)), transpose(w, {1, 0}))));
  b.output(loss, OutputKind::metric, "loss");
  b.update(w, w - grad(loss, std::span(&w, 1))[0]);
  return b.finish();
}

TEST(Partition, ATiedWeightThatIsNotSummedIsNamed) {
  expect_same_on_ranks(set_of(tied_step()));
  const PassVerdict verdict = with_fault<half_tied>(tied_step());
  EXPECT_EQ(verdict.first_bad, "partition") << verdict.why;
  EXPECT_NE(verdict.why.find("\"w\" of rank 1 is not that of rank 0"), std::string::npos) << verdict.why;
}

TEST(Partition, RanksThatWaitForEverAreNamed) {
  const PassVerdict verdict = with_fault<only_on_others>();
  EXPECT_EQ(verdict.first_bad, "partition");
  EXPECT_NE(verdict.why.find("rank 0 "), std::string::npos) << verdict.why;
}

}  // namespace
}  // namespace lathe
