#include "passes/fuse/fuse.h"

#include <algorithm>

#include "base/philox.h"
#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/grad.h"
#include "ops/loop.h"
#include "ops/matmul.h"
#include "ops/one_hot.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "passes/test_util.h"

namespace lathe {
namespace {

constexpr DType kF = DType::f32;

// Fuses, checks the result, and describes its nodes: "loop(add tanh)", "matmul(matmul add)", "transpose".
std::vector<std::string> fused_ops(const Graph& g, const PassContext& context = {}, Graph* result = nullptr) {
  verify(g, Level::tensor, "the test");
  Graph now = fuse(g, context);
  // Readers of state stand before its writer, whatever was merged.
  verify(now, Level::lowered, "fuse");
  expect_same_meaning(g, now);
  std::vector<std::string> out;
  for (const Node& n : now.nodes) {
    if (!n.is("fused")) {
      out.push_back(std::string(n.op->name()));
      continue;
    }
    const auto& p = n.get<FusedParams>();
    std::vector<std::string_view> ops;
    for (const Node& m : p.body->nodes) ops.push_back(m.op->name());
    out.push_back(fmt::format("{}({})", p.kind, fmt::join(ops, " ")));
    EXPECT_LE(n.inputs.size(), static_cast<size_t>(context.target.fuse_max_inputs));
    std::string reason;
    EXPECT_TRUE(p.kind != "loop" || lower_loop(*p.body, &reason)) << reason;
  }
  if (result) *result = std::move(now);
  return out;
}

using Names = std::vector<std::string>;

TEST(Fuse, ChainWithBroadcastAndConstant) {
  expect_pass(fuse, R"(graph g {
    input %0: f32[4, 3] batch "x"
    input %1: f32[3] param "b"
    %2: f32[4, 3] = broadcast(%1) {shape=[4, 3]}
    %3: f32[4, 3] = full() {dtype=f32, shape=[4, 3], value=0.5}
    %4: f32[4, 3] = mul(%0, %3)
    %5: f32[4, 3] = add(%4, %2)
    %6: f32[4, 3] = tanh(%5) @"act"
    output %6 result "y"
  })",
              R"(graph g {
    input %0: f32[4, 3] batch "x"
    input %1: f32[3] param "b"
    %2: f32[4, 3] = fused(%0, %1) {kind="loop", body=graph body {
      input %0: f32[4, 3] batch "x0"
      input %2: f32[3] batch "x1"
      %1: f32[4, 3] = full() {dtype=f32, shape=[4, 3], value=0.5}
      %3: f32[4, 3] = mul(%0, %1)
      %4: f32[4, 3] = broadcast(%2) {shape=[4, 3]}
      %5: f32[4, 3] = add(%3, %4)
      %6: f32[4, 3] = tanh(%5)
      output %6 result "y0"
    }} @"act"
    output %2 result "y"
  })");
}

TEST(Fuse, SingleNodesStayAsTheyAre) {
  expect_unchanged(fuse, R"(graph g {
    input %0: f32[4, 3] batch "x"
    %1: f32[4, 3] = tanh(%0)
    %2: f32[12] = reshape(%1) {shape=[12]}
    %3: f32[12] = exp(%2)
    output %3 result "y"
  })");
}

TEST(Fuse, ReductionWithMapAndTail) {
  Builder b("g");
  const Value x = b.input({kF, {4, 8}}, InputKind::batch, "x");
  b.output(rsqrt(reduce_mean(square(x), {1}, true) + 1e-5), OutputKind::result, "y");
  EXPECT_EQ(fused_ops(b.finish()), (Names{"loop(square reduce_sum full broadcast mul full broadcast add rsqrt)"}));
}

TEST(Fuse, SoftmaxIsThreeLoops) {
  Builder b("g");
  const Value x = b.input({kF, {4, 8}}, InputKind::batch, "x");
  const Value e = exp(x - reduce_max(x, {1}, true));
  b.output(e / reduce_sum(e, {1}, true), OutputKind::result, "y");
  // The second writes e and its sum.
  EXPECT_EQ(fused_ops(b.finish()), (Names{"reduce_max", "loop(broadcast sub exp reduce_sum)", "loop(broadcast div)"}));
}

TEST(Fuse, CheapNodesAreComputedTwiceRatherThanStored) {
  Builder b("g");
  const Value x = b.input({kF, {4, 8}}, InputKind::batch, "x");
  const Value d = x - reduce_mean(x, {1}, true);
  b.output(d * rsqrt(reduce_mean(square(d), {1}, true) + 1e-5), OutputKind::result, "y");
  Graph now;
  const Names names = fused_ops(b.finish(), {}, &now);
  ASSERT_EQ(names.size(), 3u);
  EXPECT_EQ(names[2], "loop(broadcast sub broadcast mul)");
  for (const Node& n : now.nodes) EXPECT_EQ(n.outputs.size(), 1u);
}

TEST(Fuse, NoPathLeavesAndComesBack) {
  Builder b("g");
  const Value x = b.input({kF, {4, 4}}, InputKind::batch, "x");
  const Value w = b.input({kF, {4, 4}}, InputKind::param, "w");
  // a and a * m could be one loop, but m lies between.
  const Value a = exp(x);
  b.output(a * matmul(a, w), OutputKind::result, "y");
  EXPECT_EQ(fused_ops(b.finish()), (Names{"exp", "matmul", "mul"}));
}

// The graph as fuse gets it.
Graph before_fuse(const Graph& g) {
  PipelineOptions options;
  options.stop_after = "dce";
  return run_pipeline(g, {}, options);
}

// The loss reads the weights late, beside the sum over classes; the gradient reads them early, over a reshape. A path
// goes from the sum into the loop of the loss and out of its early part.
TEST(Fuse, LossesWithWeightsOfSamplesAndTheirGradients) {
  Builder b("g");
  const Value x = b.input({kF, {6, 5}}, InputKind::batch, "x"), t = b.input({DType::i32, {6}}, InputKind::batch, "t");
  const Values w = {b.input({kF, {5, 8}}, InputKind::param, "w1"), b.input({kF, {8}}, InputKind::param, "b1"),
                    b.input({kF, {8, 3}}, InputKind::param, "w2"), b.input({kF, {3}}, InputKind::param, "b2")};
  const Value y = matmul(tanh(matmul(x, w[0]) + w[1]), w[2]) + w[3];
  const Value loss = sum_all(reduce_sum(y * one_hot(t, 3), {1}) * (1.0 + 39.0 * cast(t, kF)));
  b.output(loss, OutputKind::metric, "loss");
  const Values dw = grad(loss, w);
  for (size_t i = 0; i < w.size(); ++i) b.output(dw[i], OutputKind::result, "d" + std::to_string(i));
  EXPECT_LT(fused_ops(before_fuse(b.finish())).size(), 20u);
}

TEST(Fuse, SumsOfProductsOfActivationsWithTheirGradient) {
  const std::string names[] = {"tanh", "sigmoid", "relu", "gelu", "silu", "sin", "cos", "erf", "exp", "square"};
  const Shape shapes[] = {{20}, {2, 10}, {5, 4}, {10, 2}};
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const CounterRng rng(seed, 5, 0, 0);
    uint64_t counter = 0;
    Builder b("g");
    const Value x = b.input({kF, {4, 5}}, InputKind::param, "x");
    const auto activation = [&](Value v) { return unary(names[rng.below(counter++, std::size(names))], v); };
    const auto product = [&] {
      const Value left = activation(x);
      return left * activation(x);
    };
    Value loss;
    for (int k = 0; k < 5; ++k) {
      const Value left = product(), sum = left + product();
      const Value rows = reduce_sum(reshape(sum, shapes[rng.below(counter++, std::size(shapes))]), {0});
      const Value term = sum_all(activation(rows));
      loss = k ? loss + term : term;
    }
    b.output(loss, OutputKind::metric, "loss");
    b.output(grad(loss, Values{x})[0], OutputKind::result, "dx");
    const Graph g = before_fuse(b.finish());
    ASSERT_NO_THROW(fused_ops(g)) << "seed " << seed;
  }
}

TEST(Fuse, MatmulTakesBiasActivationAndResidual) {
  Builder b("g");
  const Value x = b.input({kF, {4, 6}}, InputKind::batch, "x");
  const Value w = b.input({kF, {6, 5}}, InputKind::param, "w");
  const Value bias = b.input({kF, {5}}, InputKind::param, "b");
  const Value r = b.input({kF, {4, 5}}, InputKind::batch, "r");
  b.output(relu(r + relu(matmul(x, w) + bias)), OutputKind::result, "y");
  EXPECT_EQ(fused_ops(b.finish()), (Names{"matmul(matmul broadcast add relu add relu)"}));
}

TEST(Fuse, PreActivationThatOthersNeedEndsTheEpilogue) {
  Builder b("g");
  const Value x = b.input({kF, {4, 6}}, InputKind::batch, "x");
  const Value w = b.input({kF, {6, 5}}, InputKind::param, "w");
  const Value bias = b.input({kF, {5}}, InputKind::param, "b");
  const Value z = matmul(x, w) + bias;
  b.output(gelu(z), OutputKind::result, "y");
  b.output(z, OutputKind::result, "z");
  EXPECT_EQ(fused_ops(b.finish()), (Names{"matmul(matmul broadcast add)", "gelu"}));
}

// For targets whose library computes these gradients with the product.
TEST(Fuse, ProductsTakeGradientsOfGeluAndBias) {
  Builder b("g");
  const Value x = b.input({kF, {4, 6}}, InputKind::batch, "x"), dy = b.input({kF, {4, 6}}, InputKind::batch, "dy");
  const Value w = b.input({kF, {6, 8}}, InputKind::param, "w"), bias = b.input({kF, {8}}, InputKind::param, "b");
  const Value z = matmul(x, w) + bias, dh = matmul(dy, w) * unary("gelu_slope", z);
  b.output(matmul(gelu(z), w, false, true), OutputKind::result, "y");
  b.output(reduce_sum(dh, {0}), OutputKind::result, "db");
  b.output(matmul(x, dh, true), OutputKind::result, "dw");
  const Value last = matmul(dh, w, false, true);
  b.output(matmul(last, x, true), OutputKind::result, "dw2");
  b.output(reduce_sum(last, {0}), OutputKind::result, "db2");
  const Graph g = b.finish();
  PassContext context;
  context.target.gradient_epilogues = 8;
  EXPECT_EQ(fused_ops(g, context),
            (Names{"matmul(matmul broadcast add gelu)", "matmul(gelu_slope matmul mul reduce_sum)", "matmul", "matmul",
                   "matmul", "matmul(matmul reduce_sum)"}));
  // 8 columns are no multiple of 16; sums of operands have no such limit.
  context.target.gradient_epilogues = 16;
  const Names names = fused_ops(g, context);
  for (const char* name : {"matmul(matmul broadcast add)", "gelu", "matmul(matmul reduce_sum)"})
    EXPECT_EQ(std::ranges::count(names, name), 1) << name;
  EXPECT_EQ(std::ranges::count(names, "matmul(gelu_slope matmul mul reduce_sum)"), 0);
}

TEST(Fuse, EpilogueTakesNothingElse) {
  Builder b("g");
  const Value x = b.input({kF, {4, 6}}, InputKind::batch, "x");
  const Value w = b.input({kF, {6, 5}}, InputKind::param, "w");
  const Value column = b.input({kF, {4, 1}}, InputKind::batch, "c");
  b.output(relu(matmul(x, w) + column), OutputKind::result, "y");
  EXPECT_EQ(fused_ops(b.finish()), (Names{"matmul", "loop(broadcast add relu)"}));
}

// matmul would add up its products in the storage of the sum itself.
TEST(Fuse, AccumulationIsNotDoneInPlaceByMatmul) {
  Builder b("g");
  const Value x = b.input({kF, {4, 6}}, InputKind::batch, "x");
  const Value y = b.input({kF, {4, 5}}, InputKind::batch, "y");
  const Value sum = b.input({kF, {6, 5}}, InputKind::gradient, "sum");
  b.update(sum, sum + matmul(x, y, true, false));
  EXPECT_EQ(fused_ops(b.finish()), (Names{"matmul", "add"}));
}

TEST(Fuse, AnUpdateIsOneNodePerParameter) {
  Builder b("g");
  const Value lr = b.input({kF, {}}, InputKind::step, "lr"), ok = b.input({DType::b8, {}}, InputKind::step, "ok");
  for (int i = 0; i < 3; ++i) {
    const TensorType t{kF, {3 + i, 4}};
    const std::string n = std::to_string(i);
    const Value g = b.input(t, InputKind::gradient, "g" + n), w = b.input(t, InputKind::param, "w" + n);
    const Value m = b.input(t, InputKind::optimizer, "m" + n), v = b.input(t, InputKind::optimizer, "v" + n);
    const Value m1 = m * 0.9 + g * 0.1, v1 = v * 0.999 + square(g) * 0.001;
    b.update(w, select(ok, w - lr * m1 / (sqrt(v1) + 1e-8), w));
    b.update(m, select(ok, m1, m));
    b.update(v, select(ok, v1, v));
  }
  Graph now;
  EXPECT_EQ(fused_ops(b.finish(), {}, &now).size(), 3u);
  for (const Node& n : now.nodes) {
    EXPECT_EQ(n.outputs.size(), 3u);
    EXPECT_EQ(n.inputs.size(), 6u);
  }
}

TEST(Fuse, ScalarsAreNotComputedPerElement) {
  Builder b("g");
  const Value t = b.input({kF, {}}, InputKind::step, "t"), x = b.input({kF, {4, 4}}, InputKind::batch, "x");
  const Value rate = exp(tanh(t) * 0.5);
  b.output(x * rate + rate, OutputKind::result, "y");
  EXPECT_EQ(fused_ops(b.finish()), (Names{"loop(tanh full mul exp)", "loop(broadcast mul broadcast add)"}));
}

TEST(Fuse, ReadersOfOldStateComeBeforeItsWriter) {
  Builder b("g");
  const Value x = b.input({kF, {4, 4}}, InputKind::batch, "x"), w = b.input({kF, {4, 4}}, InputKind::param, "w");
  const Value now = w * 0.9;
  // exp(w) must run before w is overwritten, so it cannot wait for what follows from the new w.
  b.output(exp(w) + matmul(x, now), OutputKind::result, "y");
  b.update(w, now);
  Graph fused;
  const Names names = fused_ops(b.finish(), {}, &fused);
  EXPECT_NE(std::ranges::find(names, "exp"), names.end());
}

TEST(Fuse, StateInATailIsNotReadByTheMap) {
  Builder b("g");
  const Value x = b.input({kF, {6, 4}}, InputKind::batch, "x"), w = b.input({kF, {4}}, InputKind::param, "w");
  // Written point by point behind the reduction, while the map still reads w for other rows.
  b.update(w, w - reduce_sum(x * w, {0}) * 0.1);
  Graph now;
  fused_ops(b.finish(), {}, &now);
  for (const Node& n : now.nodes) {
    const auto loop = lower_loop(n, now.types_of(n.inputs));
    if (!loop) continue;
    for (const LoopRead& r : loop->map.reads)
      for (const LoopStore& s : loop->tail.stores)
        EXPECT_FALSE(n.inputs[static_cast<size_t>(r.input)] == now.inputs[1].value &&
                     n.outputs[static_cast<size_t>(s.output)] == now.outputs[0].value);
  }
}

TEST(Fuse, KeepsTheLimitsOfInputsAndInstructions) {
  PassContext context;
  context.target.fuse_max_inputs = 3;
  Builder b("g");
  Value sum = b.input({kF, {5}}, InputKind::batch, "x");
  for (int i = 0; i < 10; ++i) sum = sum + b.input({kF, {5}}, InputKind::batch, "x" + std::to_string(i));
  b.output(sum, OutputKind::result, "y");
  EXPECT_EQ(fused_ops(b.finish(), context).size(), 5u);

  Builder c("g");
  Value x = c.input({kF, {5}}, InputKind::batch, "x");
  for (int i = 0; i < 500; ++i) x = unary(i % 2 ? "tanh" : "sin", x);
  c.output(x, OutputKind::result, "y");
  EXPECT_EQ(fused_ops(c.finish()).size(), 4u);  // of 160 instructions at most
}

TEST(Fuse, ALateReaderDoesNotKeepMoreAlive) {
  // a * c is read at the end only. Computing it there would keep both a and c until then.
  Builder b("g");
  const Value w = b.input({kF, {4, 4}}, InputKind::param, "w"), x = b.input({kF, {4, 4}}, InputKind::batch, "x");
  const Value a = matmul(x, w), c = matmul(w, x);
  Value y = x;
  for (int i = 0; i < 12; ++i) y = matmul(y, w);
  b.output(y * tanh(a * c), OutputKind::result, "y");
  b.output(y * tanh(x), OutputKind::result, "z");  // x is there anyway
  const Names names = fused_ops(b.finish());
  EXPECT_NE(std::ranges::find(names, "loop(mul tanh)"), names.end());
  EXPECT_NE(std::ranges::find(names, "loop(tanh mul)"), names.end());
}

TEST(Fuse, ConstantsThatANodeNeedsAreMade) {
  Builder b("g");
  const Value x = b.input({kF, {4, 4}}, InputKind::batch, "x"), s = b.input({kF, {}}, InputKind::step, "s");
  const Value ones = full(b, {kF, {4, 4}}, 1);
  b.output(matmul(x, broadcast_to(s, {4, 4})) * ones, OutputKind::result, "y");
  b.output(ones, OutputKind::result, "ones");
  EXPECT_EQ(fused_ops(b.finish()), (Names{"broadcast", "matmul", "loop(full mul)", "full"}));
}

TEST(Fuse, AResultMayRepeatAComputedValue) {
  Builder b("g");
  const Value x = b.input({kF, {3, 1}}, InputKind::batch, "x");
  b.output(broadcast_to(tanh(x) * 0.5, {3, 4}), OutputKind::result, "y");
  EXPECT_EQ(fused_ops(b.finish()), (Names{"loop(tanh full broadcast mul)", "broadcast"}));
}

}  // namespace
}  // namespace lathe
