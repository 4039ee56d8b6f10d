// Steps in blocks: what all ranks together compute is what the whole graph says.
#include "passes/partition/blocks.h"

#include <gtest/gtest.h>

#include "ir/print.h"
#include "ops/batch_norm.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/transpose.h"
#include "ops/tree_sum.h"
#include "passes/check/validate.h"

namespace lathe {
namespace {

// A layer with batch norm and a loss of all pairs of samples, which needs them all.
Graph pairs_step(int64_t samples) {
  Builder b("train");
  const Value x = b.input({DType::f32, {samples, 6}}, InputKind::batch, "x");
  const Value w = b.input({DType::f32, {6, 3}}, InputKind::param, "w"),
              gamma = b.input({DType::f32, {3}}, InputKind::param, "gamma"),
              beta = b.input({DType::f32, {3}}, InputKind::param, "beta");
  const Value y = tanh(batch_norm(matmul(x, w), gamma, beta, 1e-5).y);
  const Value loss = sum_all(square(matmul(y, transpose(y, {1, 0}))));
  const Value parameters[] = {w, gamma};
  const Values slopes = grad(loss, parameters);
  b.output(loss, OutputKind::metric, "loss");
  b.update(w, w - slopes[0] * 0.01);
  b.update(gamma, gamma - slopes[1] * 0.01);
  return b.finish();
}

PassContext in_blocks(int64_t blocks) {
  PassContext context;
  context.options.set(SameBitsOptions{true, blocks});
  return context;
}

TEST(Blocks, KeepTheNumbers) {
  for (const int64_t samples : {16, 13, 5})
    for (const int ranks : {1, 2, 3, 4, 8}) {
      const PassVerdict verdict = validate_ranks(set_of(pairs_step(samples)), pipeline(), in_blocks(8), ranks);
      EXPECT_TRUE(verdict.ok()) << samples << " samples, " << ranks << " ranks: " << verdict.why;
      EXPECT_FALSE(verdict.passes.empty());
    }
}

TEST(Blocks, OneRankAddsUpWithoutOthers) {
  PipelineOptions until;
  until.stop_after = "partition";
  const Graph alone = run_pipeline(pairs_step(16), in_blocks(4), until);
  EXPECT_EQ(std::ranges::count(alone.nodes, &tree_sum_op, &Node::op), 0);
  EXPECT_EQ(alone.type(alone.inputs[0].value), (TensorType{DType::f32, {16, 6}}));
  PassContext second = in_blocks(4);
  second.mesh = {2, 1};
  const Graph half = run_pipeline(pairs_step(16), second, until);
  EXPECT_GT(std::ranges::count(half.nodes, &tree_sum_op, &Node::op), 0) << print(half);
  EXPECT_EQ(half.type(half.inputs[0].value), (TensorType{DType::f32, {8, 6}}));
}

TEST(Blocks, MoreRanksThanBlocksAreRefused) {
  PassContext context = in_blocks(4);
  context.mesh = {5, 0};
  EXPECT_THROW(run_pipeline(pairs_step(16), context), UserError);
}

}  // namespace
}  // namespace lathe
