// State split among ranks: what is split, what is sent for it, and that all ranks together compute the whole step.
#include "passes/partition/shard_state.h"

#include <gtest/gtest.h>

#include "ir/print.h"
#include "ops/broadcast.h"
#include "ops/collective.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/gather.h"
#include "ops/grad.h"
#include "ops/gradient.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "passes/check/random_graph.h"
#include "passes/check/validate.h"
#include "passes/partition/partition.h"
#include "passes/techniques/table.h"

namespace lathe::shard_state_test {
namespace {

constexpr DType kFloat = DType::f32;

// A net of which every parameter has two moments, as Adam has them.
class Trained {
 public:
  Trained(std::string name, int64_t samples) : b(std::move(name)) {
    x = b.input({kFloat, {samples, 6}}, InputKind::batch, "x");
    t = b.input({kFloat, {samples, 3}}, InputKind::batch, "t");
  }

  Value param(const std::string& name, Shape shape) {
    StateSpec row{name, {kFloat, shape}, InputKind::param, Init::uniform(0.5), {}};
    row.gated = true;
    set.state.add(row);
    params.push_back(b.input(row.type, InputKind::param, name));
    names.push_back(name);
    return params.back();
  }

  // `decay`: the norm of a parameter counts, as in LAMB.
  StepSet finish(Value loss, bool decay = false) {
    const Values slopes = grad(loss, params);
    const Origin origin(b, "update", Role::update);
    for (size_t i = 0; i < params.size(); ++i) {
      const Value p = params[i], g = gradient(slopes[i], names[i]);
      const Value m = state(names[i] + ".m", p.type(), names[i]), v = state(names[i] + ".v", p.type(), names[i]);
      const Value m2 = m * 0.9 + g * 0.1, v2 = v * 0.99 + square(g) * 0.01;
      b.update(m, m2);
      b.update(v, v2);
      const Value rate = decay ? broadcast_to(sqrt(sum_all(square(p))) * 0.01, p.shape()) : constant_like(p, 0.1);
      b.update(p, p - rate * m2 * rsqrt(square(v2) + 1e-3));
    }
    b.output(loss, OutputKind::metric, "loss");
    set.graphs.push_back(b.finish());
    return std::move(set);
  }

  Builder b;
  StepSet set;
  Value x, t;
  Values params;
  std::vector<std::string> names;

 private:
  Value state(const std::string& name, const TensorType& type, const std::string& of) {
    StateSpec row{name, type, InputKind::optimizer, {}, {}};
    row.of = of;
    row.gated = true;
    row.saved_in = StateFile::optimizer;
    set.state.add(row);
    return b.input(type, InputKind::optimizer, name);
  }
};

Value mean_of(Value x) { return sum_all(x) * (1.0 / static_cast<double>(x.shape().numel())); }

// Two layers with biases; sizes that 2 and 4 divide, or that nothing divides.
StepSet net(int64_t samples = 8, bool decay = false, int64_t wide = 8, const char* name = "train") {
  Trained n(name, samples);
  const Value h = tanh(matmul(n.x, n.param("w", {6, wide})) + n.param("b", {wide}));
  const Value y = matmul(h, n.param("u", {wide, 3}));
  return n.finish(mean_of(square(y - n.t)), decay);
}

PassContext context_of(int64_t level, int ranks, int rank = 0, int64_t least = 1) {
  PassContext context;
  context.mesh = {ranks, rank};
  context.options.set(ShardOptions{level, least}).set(GateOptions{.update = "after_all"});
  return context;
}

StepSet partitioned(const StepSet& set, const PassContext& context) {
  PipelineOptions o;
  o.stop_after = "partition";
  return run_pipeline(set, context, o);
}

size_t count(const Graph& g, const OpDef& op) {
  return static_cast<size_t>(std::ranges::count(g.nodes, &op, &Node::op));
}

// Sums over ranks of more than a number: losses, norms and flags are sent in any case.
size_t large_sums(const Graph& g) {
  return static_cast<size_t>(std::ranges::count_if(
      g.nodes, [&](const Node& n) { return n.op == &all_reduce_op && g.type(n.inputs[0]).numel() > 1; }));
}

void expect_same_on_ranks(const StepSet& set, PassContext context = context_of(0, 1), int most = 4) {
  for (int64_t level = 1; level <= 3; ++level)
    for (int ranks = 2; ranks <= most; ++ranks) {
      context.options.set(ShardOptions{level, 1});
      const PassVerdict verdict = validate_ranks(set, pipeline(), context, ranks);
      EXPECT_TRUE(verdict.ok()) << "level " << level << ", " << ranks << " ranks: " << verdict.why;
      for (const PassCheck& pass : verdict.passes) EXPECT_LT(pass.error, 1e-10) << pass.name;
    }
}

TEST(ShardState, TheAxisIsThatOfTheLeastImbalance) {
  EXPECT_EQ(split_axis({512, 784}, 4), 0);
  EXPECT_EQ(split_axis({784, 512}, 3), 0);  // as good as the second
  EXPECT_EQ(split_axis({3, 3, 64, 64}, 4), 2);
  EXPECT_EQ(split_axis({3, 3, 64, 64}, 3), 0);
  EXPECT_EQ(split_axis({10, 512}, 4), 1);
  EXPECT_EQ(split_axis({10}, 4), 0);
  EXPECT_EQ(split_axis({3}, 4), -1);
  EXPECT_EQ(split_axis({}, 2), -1);
}

TEST(ShardState, LevelsSayWhatIsSplit) {
  PassContext context = context_of(0, 2);
  const auto axis = [&](int64_t level, const char* name, int64_t least = 1) {
    context.options.set(ShardOptions{level, least});
    return shard_state(net(), context).state.find(name)->part.axis;
  };
  EXPECT_EQ(axis(0, "w.m"), -1);
  EXPECT_EQ(axis(1, "w.m"), 0);
  EXPECT_EQ(axis(2, "w.v"), 0);
  EXPECT_EQ(axis(2, "w"), -1);
  EXPECT_EQ(axis(3, "w"), 0);
  EXPECT_EQ(axis(3, "b"), 0);
  EXPECT_EQ(axis(3, "b", 9), -1);
  context.mesh.ranks = 7;
  EXPECT_EQ(axis(3, "w"), 1);
  EXPECT_EQ(axis(3, "u"), 0);
  context.mesh.ranks = 9;
  EXPECT_EQ(axis(3, "w"), -1);
  context.mesh.ranks = 1;
  EXPECT_EQ(axis(3, "w"), -1);
}

TEST(ShardState, RowsOfARankSayTheirPart) {
  const StepSet set = partitioned(net(), context_of(1, 4, 1));
  const StateSpec& m = *set.state.find("w.m");
  EXPECT_EQ(m.type, (TensorType{kFloat, {6, 2}}));  // 6 is not divided by 4, 8 is
  EXPECT_EQ(m.whole_type(), (TensorType{kFloat, {6, 8}}));
  EXPECT_EQ(m.part, (StatePart{1, {6, 8}, 2}));
  EXPECT_FALSE(set.state.find("w")->part.is_part());
  EXPECT_TRUE(structurally_equal(parse_step_set(print(set), registry()), set));
}

// A gradient becomes the part of its sum, and the parameter is put together again; no other tensor is sent.
TEST(ShardState, MomentsWantPartsOfGradients) {
  for (const int64_t level : {1, 2}) {
    const Graph g = partitioned(net(), context_of(level, 2)).graphs[0];
    EXPECT_EQ(count(g, reduce_scatter_op), 3u) << print(g);
    EXPECT_EQ(count(g, all_gather_op), 3u) << print(g);
    EXPECT_EQ(large_sums(g), 0u) << print(g);
  }
}

// A hidden weight is gathered for its product, and again for the gradient of what it was multiplied with.
TEST(ShardState, ParametersAreGatheredInEachDirection) {
  const Graph g = partitioned(net(), context_of(3, 2)).graphs[0];
  EXPECT_EQ(count(g, reduce_scatter_op), 3u) << print(g);
  EXPECT_EQ(count(g, all_gather_op), 4u) << print(g);  // w, b and u; u in backward
  for (const Node& n : g.nodes)
    if (n.op == &all_gather_op) {
      EXPECT_NE(n.role, Role::update) << print_node(g, n);
    }
}

// Norms of parameters are sums over parts.
TEST(ShardState, NormsAreSums) {
  const Graph g = partitioned(net(8, true), context_of(3, 2)).graphs[0];
  EXPECT_EQ(count(g, all_gather_op), 4u) << print(g);
  EXPECT_EQ(large_sums(g), 0u) << print(g);
}

TEST(ShardState, RanksAgree) {
  for (const int64_t samples : {8, 7, 2}) expect_same_on_ranks(net(samples), context_of(0, 1), 5);
  expect_same_on_ranks(net(8, true));
  expect_same_on_ranks(net(6, false, 7));
}

// As many samples as a weight has rows: splits of the two are not the same.
TEST(ShardState, ElementsAreNoSamples) {
  const Graph g = partitioned(net(6), context_of(3, 3)).graphs[0];
  EXPECT_EQ(count(g, all_gather_op), 4u) << print(g);
  EXPECT_EQ(count(g, reduce_scatter_op), 3u) << print(g);
  expect_same_on_ranks(net(6));
  expect_same_on_ranks(net(8));
}

TEST(ShardState, AnEmbeddingThatIsTiedAgrees) {
  Trained n("train", 6);
  const Value ids = n.b.input({DType::i32, {6}}, InputKind::batch, "ids");
  const Value table = n.param("table", {9, 6});
  const Value h = tanh(gather(table, ids) + n.x);
  const StepSet set = n.finish(mean_of(square(matmul(h, table, false, true))));
  const InputMaker inputs = [](const Graph& g, const StateTable&, uint64_t seed) {
    std::vector<HostTensor> out = random_inputs(g, seed);
    for (size_t i = 0; i < g.inputs.size(); ++i)
      if (g.inputs[i].name == "ids")
        for (size_t k = 0; k < out[i].data.size(); ++k) out[i].data[k] = static_cast<double>(k * 2 % 9);
    return out;
  };
  for (int64_t level = 1; level <= 3; ++level) {
    const PassVerdict verdict = validate_ranks(set, pipeline(), context_of(level, 1), 3, 1, inputs);
    EXPECT_TRUE(verdict.ok()) << "level " << level << ": " << verdict.why;
  }
}

// Techniques that read all gradients, or keep copies of parameters.
TEST(ShardState, TechniquesAgree) {
  const std::vector<std::function<void(PassOptions&)>> techniques{
      [](PassOptions& o) { o.set(ClipNormOptions{0.01}); },
      [](PassOptions& o) { o.set(ClipValueOptions{0.001}); },
      [](PassOptions& o) { o.set(CentralizeOptions{true}); },
      [](PassOptions& o) { o.set(AverageOptions{0.9}); },
      [](PassOptions& o) { o.set(LookaheadOptions{2}); },
      [](PassOptions& o) { o.set(SamOptions{0.05}); },
      [](PassOptions& o) { o.set(GateOptions{.update = "at_gradient"}); },
      [](PassOptions& o) { o.set(AccumulateOptions{2}); },
  };
  for (size_t i = 0; i < techniques.size(); ++i) {
    SCOPED_TRACE(i);
    PassContext context = context_of(0, 1);
    techniques[i](context.options);
    expect_same_on_ranks(net(), context, 3);
  }
}

// With clipping every gradient waits for the norm of all: as a part.
TEST(ShardState, ClippingKeepsPartsAlone) {
  PassContext context = context_of(2, 2);
  context.options.set(ClipNormOptions{0.1});
  const Graph g = partitioned(net(), context).graphs[0];
  EXPECT_EQ(count(g, reduce_scatter_op), 3u) << print(g);
  EXPECT_EQ(large_sums(g), 0u) << print(g);
}

// Level 1 adds up whole gradients of micro-batches and sends their sum; level 2 sends each, and adds up parts.
TEST(ShardState, SumsOfGradientsAreSplitFromLevel2On) {
  for (const int64_t level : {1, 2}) {
    PassContext context = context_of(level, 2);
    context.options.set(AccumulateOptions{2});
    const StepSet set = partitioned(net(), context);
    ASSERT_EQ(set.graphs.size(), 2u);
    EXPECT_EQ(count(set.graphs[0], reduce_scatter_op), level == 1 ? 0u : 3u) << print(set.graphs[0]);
    EXPECT_EQ(count(set.graphs[1], reduce_scatter_op), level == 1 ? 3u : 0u) << print(set.graphs[1]);
    size_t parts = 0;
    for (const StateSpec& s : set.state) parts += s.kind == InputKind::gradient && s.part.is_part() ? 1 : 0;
    EXPECT_EQ(parts, level == 1 ? 0u : 3u);
  }
}

// Planted faults are named.
using Fault = Graph (*)(Graph, const PassContext&);

Graph gathers_another_axis(Graph g, const PassContext&) {
  const auto found = std::ranges::find(g.nodes, &all_gather_op, &Node::op);
  ShardParams p = found->get<ShardParams>();
  p.axis = 1 - p.axis;
  found->params = make_params(p);
  return g;
}

// What the rank has, twice, in place of what both have.
Graph does_not_gather(Graph g, const PassContext&) {
  const auto found = std::ranges::find(g.nodes, &all_gather_op, &Node::op);
  const ValueId part = found->inputs[0];
  found->params = make_params(ConcatParams{found->get<ShardParams>().axis});
  found->op = &concat_op;
  found->inputs = {part, part};
  return g;
}

template <Fault fault>
StepSet with_fault(StepSet set, const PassContext& context) {
  return each_graph<fault>(partition(std::move(set), context), context);
}

// Rows that say of a part that it is the other rank's.
StepSet misplaces_parts(StepSet set, const PassContext& context) {
  PassContext other = context;
  other.mesh.rank = 1 - context.mesh.rank;
  StateTable rows = partition(set, other).state;
  set = partition(std::move(set), context);
  set.state = std::move(rows);
  return set;
}

PassVerdict verdict_of(PassFunction wrong, int64_t level) {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  std::ranges::find(passes, "partition", &PassEntry::name)->run = wrong;
  return validate_ranks(net(), passes, context_of(level, 1), 2);
}

TEST(ShardState, AMissingGatherIsNamed) {
  for (int64_t level = 1; level <= 3; ++level)
    EXPECT_EQ(verdict_of(with_fault<does_not_gather>, level).first_bad, "partition") << level;
}

TEST(ShardState, APartInAWrongPlaceIsNamed) {
  const PassVerdict verdict = verdict_of(misplaces_parts, 1);
  EXPECT_EQ(verdict.first_bad, "partition");
  EXPECT_NE(verdict.why.find("is off by"), std::string::npos) << verdict.why;
}

TEST(ShardState, AWrongAxisIsNamed) {
  try {
    verdict_of(with_fault<gathers_another_axis>, 3);
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("after pass partition"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lathe::shard_state_test
