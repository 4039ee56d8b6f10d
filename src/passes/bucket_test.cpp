// Sums over ranks in buckets: fewer collectives, none of them later, the same numbers.
#include "passes/bucket.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ir/print.h"
#include "ops/batch_norm.h"
#include "ops/collective.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "passes/check/random_graph.h"
#include "passes/check/validate.h"

namespace lathe {
namespace {

constexpr DType kF32 = DType::f32;

// Layers under a loss, batch norm between them or not, gradients as updates.
Graph layers_step(int layers, bool norm, bool clip = false) {
  Builder b("train");
  const Value x = b.input({kF32, {8, 6}}, InputKind::batch, "x"), t = b.input({kF32, {8, 6}}, InputKind::batch, "t");
  Value y = x;
  Values params;
  for (int i = 0; i < layers; ++i) {
    const Origin layer(b, fmt::format("fc{}", i));
    const auto param = [&](const char* name, const Shape& shape) {
      params.push_back(b.input({kF32, shape}, InputKind::param, fmt::format("{}{}", name, i)));
      return params.back();
    };
    y = matmul(y, param("w", {6, 6})) + param("b", {6});
    if (norm) {
      const Value gamma = param("gamma", {6});
      y = batch_norm(y, gamma, param("beta", {6}), 1e-5).y;
    }
    y = tanh(y);
  }
  const Value loss = sum_all(square(y - t)) * (1.0 / 48);
  Values slopes = grad(loss, params);
  if (clip) {
    Value norm2;
    for (const Value& g : slopes) norm2 = norm2.valid() ? norm2 + sum_all(square(g)) : sum_all(square(g));
    for (Value& g : slopes) g = g / sqrt(norm2 + 1.0);
  }
  b.output(loss, OutputKind::metric, "loss");
  for (size_t i = 0; i < params.size(); ++i) b.update(params[i], params[i] - slopes[i] * 0.1);
  return b.finish();
}

PassContext context_of(int ranks, int64_t bytes) {
  PassContext context;
  context.mesh = {ranks, 0};
  context.options.set(BucketOptions{.bytes = {bytes}});
  return context;
}

Graph bucketed(const Graph& g, int ranks, int64_t bytes, bool on = true) {
  PipelineOptions o;
  o.stop_after = on ? "bucket" : "vote";
  return run_pipeline(g, context_of(ranks, bytes), o);
}

std::vector<const Node*> sums_of(const Graph& g) {
  std::vector<const Node*> out;
  for (const Node& n : g.nodes)
    if (n.op == &all_reduce_op) out.push_back(&n);
  return out;
}

int64_t bytes_of(const Graph& g, const Node& n) {
  int64_t bytes = 0;
  for (const ValueId v : n.inputs) bytes += g.type(v).bytes();
  return bytes;
}

// Collectives that must follow each other: what latency cannot be hidden of.
int longest_chain(const Graph& g) {
  std::vector<int> depth(g.types.size(), 0);
  int longest = 0;
  for (const Node& n : g.nodes) {
    int most = 0;
    for (const ValueId v : n.inputs) most = std::max(most, depth[static_cast<size_t>(v)]);
    most += n.op->has(kOrdered) ? 1 : 0;
    longest = std::max(longest, most);
    for (const ValueId v : n.outputs) depth[static_cast<size_t>(v)] = most;
  }
  return longest;
}

TEST(Bucket, GradientsGoTogetherInTheOrderOfBackward) {
  const Graph apart = bucketed(layers_step(6, false), 4, 0, false), g = bucketed(layers_step(6, false), 4, 400);
  EXPECT_EQ(sums_of(apart).size(), 14u);  // 12 gradients, the loss and the vote
  const auto sums = sums_of(g);
  size_t tensors = 0;
  const auto def = definitions(g);
  for (size_t i = 0; i < sums.size(); ++i) {
    tensors += sums[i]->inputs.size();
    EXPECT_LE(bytes_of(g, *sums[i]), 600);
    EXPECT_TRUE(i + 1 == sums.size() || bytes_of(g, *sums[i]) >= 200) << i;
    int32_t last = -1;
    for (const ValueId v : sums[i]->inputs) {
      EXPECT_GE(def[static_cast<size_t>(v)], last);
      last = def[static_cast<size_t>(v)];
    }
    EXPECT_EQ(sums[i], &g.nodes[static_cast<size_t>(last) + 1]) << "as soon as its last input is there";
  }
  EXPECT_EQ(tensors, 14u);
  // The last layer's gradients come first, although the updates stand in the order of the parameters.
  const auto layer_of = [&](const Node& sum) {
    for (const Output& o : g.outputs)
      if (const int32_t d = def[static_cast<size_t>(o.value)];
          d >= 0 && std::ranges::find(g.nodes[static_cast<size_t>(d)].inputs, sum.outputs.back()) !=
                        g.nodes[static_cast<size_t>(d)].inputs.end())
        return o.name.back();
    return '?';
  };
  EXPECT_EQ(layer_of(*sums.back()), '0');
  EXPECT_GT(layer_of(*sums.front()), '2');
  EXPECT_LE(sums.size(), 4u);
  EXPECT_EQ(longest_chain(g), 1);
  EXPECT_EQ(sums_of(bucketed(layers_step(6, false), 4, 1 << 20)).size(), 1u);
}

// Statistics are needed at once: they join those of their layer at most, and no chain gets longer.
TEST(Bucket, StatisticsDoNotWaitForGradients) {
  const Graph apart = bucketed(layers_step(4, true), 3, 0, false), g = bucketed(layers_step(4, true), 3, 1 << 20);
  EXPECT_LT(sums_of(g).size(), sums_of(apart).size());
  EXPECT_EQ(longest_chain(g), longest_chain(apart));
  size_t gradients = 0;
  for (const Node* n : sums_of(g))
    if (std::ranges::any_of(n->inputs, [&](ValueId v) { return g.type(v).shape.ndim() == 2; })) ++gradients;
  EXPECT_EQ(gradients, 1u) << print(g);  // all weights in one
}

TEST(Bucket, NothingToJoinIsLeft) {
  const Graph whole = layers_step(2, false);
  EXPECT_TRUE(structurally_equal(bucketed(whole, 1, 0), bucketed(whole, 1, 0, false)));
  EXPECT_EQ(sums_of(bucketed(whole, 3, 1)).size(), sums_of(bucketed(whole, 3, 1, false)).size());  // all large enough
}

TEST(Bucket, RanksAgree) {
  for (const bool norm : {false, true})
    for (const bool clip : {false, true})
      for (const int64_t bytes : {1, 100, 300, 1 << 20})
        for (const int ranks : {2, 3, 5}) {
          const PassVerdict verdict =
              validate_ranks(set_of(layers_step(3, norm, clip)), pipeline(), context_of(1, bytes), ranks);
          EXPECT_TRUE(verdict.ok()) << ranks << " ranks, " << bytes << ": " << verdict.why;
        }
}

TEST(Bucket, RandomGraphsAgree) {
  size_t before = 0, after = 0;
  for (uint64_t seed = 0; seed < 24; ++seed) {
    RandomGraphOptions o;
    o.kind = static_cast<RandomGraphKind>(seed % 4);
    o.gradient = true;
    const Graph g = random_graph(seed, o);
    const PassVerdict verdict = validate_ranks(set_of(g), pipeline(), context_of(1, 256), 3, seed);
    EXPECT_TRUE(verdict.ok()) << "seed " << seed << ": " << verdict.why;
    const Graph apart = bucketed(g, 3, 256, false), joined = bucketed(g, 3, 256);
    EXPECT_EQ(longest_chain(apart), longest_chain(joined)) << seed;
    before += sums_of(apart).size();
    after += sums_of(joined).size();
  }
  EXPECT_LT(after, before);
}

// Latency is about a tenth of a ring's time, within bounds: half as many bytes, or twice as many, would be it.
TEST(Bucket, SizesFollowTheLink) {
  const Link link{.latency = 10e-6, .bandwidth = 4e9};
  for (const int ranks : {2, 3, 8, 64}) {
    const auto bytes = static_cast<double>(bucket_bytes(link, ranks));
    const double turns = 2 * (ranks - 1), latency = turns * link.latency;
    const auto share = [&](double size) { return latency / (latency + turns * size / ranks / link.bandwidth); };
    EXPECT_LE(share(2 * bytes), 0.1) << ranks;
    EXPECT_GE(share(bytes / 2), 0.1) << ranks;
  }
  EXPECT_EQ(bucket_bytes({}, 2), 1 << 20);
  EXPECT_EQ(bucket_bytes({0, 1e9}, 2), 64 << 10);
  EXPECT_EQ(bucket_bytes({1, 1e9}, 2), 64 << 20);
}

// What is measured varies, the size does not.
TEST(Bucket, SizesAreCoarse) {
  for (const double factor : {0.85, 1.0, 1.5, 2.0, 3.0})
    EXPECT_EQ(bucket_bytes({12e-6 * factor, 3e9}, 2), 1 << 20) << factor;
}

// Planted faults are named.
Node& first_bucket(Graph& g) {
  return *std::ranges::find_if(g.nodes, [](const Node& n) { return n.op == &all_reduce_op && n.inputs.size() > 1; });
}
void swap_results(Graph& g) {  // of two tensors of one type
  Node& n = first_bucket(g);
  for (size_t i = 0; i < n.outputs.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (g.type(n.outputs[i]) == g.type(n.outputs[k])) return std::swap(n.outputs[i], n.outputs[k]);
}
void leave_one_out(Graph& g) {
  Node& n = first_bucket(g);
  const ValueId in = n.inputs.back(), out = n.outputs.back();
  n.inputs.truncate(n.inputs.size() - 1);
  n.outputs.truncate(n.outputs.size() - 1);
  for (Node& reader : g.nodes)
    for (ValueId& v : reader.inputs)
      if (v == out) v = in;
  for (Output& o : g.outputs)
    if (o.value == out) o.value = in;
}
template <void (*fault)(Graph&), int rank>
StepSet wrong_bucket(StepSet set, const PassContext& context) {
  set = bucket(std::move(set), context);
  if (rank < 0 || context.mesh.rank == rank) fault(set.graphs[0]);
  return set;
}
template <void (*fault)(Graph&), int rank = -1>
PassVerdict with_fault() {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  std::ranges::find(passes, "bucket", &PassEntry::name)->run = wrong_bucket<fault, rank>;
  return validate_ranks(set_of(layers_step(3, true)), passes, context_of(1, 200), 3);
}

TEST(Bucket, FaultsAreNamed) {
  for (const PassVerdict& v : {with_fault<swap_results>(), with_fault<leave_one_out>(), with_fault<swap_results, 1>(),
                               with_fault<leave_one_out, 2>()})
    EXPECT_EQ(v.first_bad, "bucket") << v.why;
  const PassVerdict lone = with_fault<leave_one_out, 2>();
  EXPECT_NE(lone.why.find("rank 2 has"), std::string::npos) << lone.why;
}

}  // namespace
}  // namespace lathe
