// Recipes divided among ranks: the tiny twins with the techniques, losses and optimizers that a run can have.
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "compile/compile.h"
#include "nn/optimizers/rules.h"
#include "passes/partition/shard_state.h"
#include "selftest/selftest.h"

namespace lathe {
namespace {

struct RankCase {
  const char* base;
  Sets sets;
};

std::vector<RankCase> rank_cases() {
  std::vector<RankCase> cases{
      {"mlp", {"train.accumulate=4"}},
      {"fashion_mnist", {"train.accumulate=3", "train.clip_norm=0.5", "train.clip_value=0.01"}},
      {"fashion_mnist", {"train.accumulate=2", "train.precision=bf16"}},
      {"fashion_mnist", {"train.accumulate=2", "train.precision=f16"}},
      {"gpt_tiny", {"train.accumulate=2", "train.ema=0.9", "model.dropout=0.1"}},
      {"mlp", {"train.ema=0.95"}},
      {"fashion_mnist", {"train.ema=0.95", "train.precision=f16"}},
      {"mlp", {"train.ema=0.9", "optimizer.groups=[{match=\"*.bias\",frozen=true}]"}},
      {"fashion_mnist", {"train.swa_from=1", "train.accumulate=2"}},
      {"mlp", {"train.sam=0.05"}},
      {"mlp", {"train.sam=0.05", "train.accumulate=4"}},
      {"mlp", {"train.sam=0.05", "model.dropout=0.2"}},
      {"fashion_mnist", {"train.sam=0.05", "train.clip_norm=0.5"}},
      {"mlp", {"optimizer.lookahead=3"}},
      {"mlp", {"optimizer.lookahead=3", "train.sam=0.05", "train.ema=0.9"}},
      {"mlp", {"train.clip_norm=0.1"}},
      {"mlp", {"train.clip_value=0.01"}},
      {"mlp", {"train.centralize=true"}},
      {"fashion_mnist", {"train.update=at_gradient"}},
      {"fashion_mnist", {"train.update=after_all", "train.on_nan=skip"}},
      {"mlp", {"train.label_smoothing=0.1"}},
      {"fashion_mnist", {"train.loss=focal"}},
      {"mlp", {"train.loss=bce", "train.label_smoothing=0.1"}},
      {"mlp", {"train.loss=kl", "train.label_smoothing=0.1"}},
      {"mlp", {"train.loss=triplet", "train.embedding=8"}},
      {"fashion_mnist", {"train.loss=contrastive", "train.embedding=8"}},
      {"diamonds", {"train.loss=mse"}},
      {"diamonds", {"train.loss=l1"}},
      {"diamonds", {"train.loss=huber"}},
      {"clipart_unet", {"train.loss=focal", "model.dropout=0.1"}},
      {"clipart_denoise", {"train.loss=l1"}},
      {"mlp", {"model.family=mixer", "model.dropout=0.1"}},
      {"mlp", {"model.family=bert", "model.layers=2", "model.dropout=0.1"}},
      {"mlp", {"model.family=lstm", "model.cell=gru"}},
      {"mlp", {"model.family=mobilenetv2"}},
      {"mlp", {"model.family=efficientnet", "model.variant=1"}},
      {"mlp", {"model.family=vit", "model.pool=mean"}},
      {"gpt_tiny",
       {"model.norm=rms", "model.positions=rotary", "model.mlp=swiglu", "model.kv_heads=2", "model.bias=false",
        "model.tied=false"}},
  };
  for (const OptimizerRule& rule : kOptimizerRules)
    cases.push_back({"fashion_mnist", {"optimizer.name=" + std::string(rule.name), "optimizer.weight_decay=0.1"}});
  return cases;
}

// The same with state split among the ranks: every optimizer, and what reads or keeps all gradients or weights.
std::vector<RankCase> sharded_cases() {
  std::vector<RankCase> cases{
      {"fashion_mnist", {"train.accumulate=3", "train.clip_norm=0.5", "train.clip_value=0.01", "parallel.shard=2"}},
      {"fashion_mnist", {"train.accumulate=2", "train.precision=f16", "parallel.shard=3"}},
      {"gpt_tiny", {"train.accumulate=2", "train.ema=0.9", "model.dropout=0.1", "parallel.shard=1"}},
      {"gpt_tiny", {"train.clip_norm=0.1", "parallel.shard=3"}},
      {"mlp", {"train.ema=0.9", "optimizer.groups=[{match=\"*.bias\",frozen=true}]", "parallel.shard=3"}},
      {"fashion_mnist", {"train.ema=0.95", "train.precision=f16", "parallel.shard=2"}},
      {"fashion_mnist", {"train.swa_from=1", "train.accumulate=2", "parallel.shard=2"}},
      {"mlp", {"train.sam=0.05", "train.accumulate=4", "parallel.shard=3"}},
      {"fashion_mnist", {"train.sam=0.05", "train.clip_norm=0.5", "parallel.shard=2"}},
      {"mlp", {"optimizer.lookahead=3", "train.sam=0.05", "train.ema=0.9", "parallel.shard=3"}},
      {"mlp", {"train.centralize=true", "parallel.shard=3"}},
      {"fashion_mnist", {"train.update=at_gradient", "parallel.shard=3"}},
      {"fashion_mnist", {"train.update=after_all", "train.on_nan=skip", "parallel.shard=2"}},
      {"mlp", {"model.family=lstm", "model.cell=gru", "parallel.shard=3"}},
      {"mlp", {"model.family=vit", "model.pool=mean", "parallel.shard=3"}},
  };
  for (const OptimizerRule& rule : kOptimizerRules)
    for (const char* level : {"parallel.shard=2", "parallel.shard=3"})
      cases.push_back(
          {"fashion_mnist", {"optimizer.name=" + std::string(rule.name), "optimizer.weight_decay=0.1", level}});
  for (RankCase& c : cases) c.sets.emplace_back("parallel.shard_least=1");
  return cases;
}

PassVerdict verdict_of(const Recipe& r, int ranks) {
  const DataSpec data = describe_data(r);
  const int64_t classes = step_config(r, data).model.classes;
  const InputMaker inputs = [&](const Graph& g, const StateTable& state, uint64_t seed) {
    return step_inputs(g, state, classes, seed);
  };
  const PassContext context = pass_context(r, find_backend("cpu").target({}));
  return validate_ranks(build_steps(r, data, {}), pipeline(), context, ranks, 1, inputs);
}

void expect_same_on_ranks(const std::vector<RankCase>& cases) {
  for (const RankCase& c : cases) {
    const Recipe r = tiny_twin(load_recipe(c.base, c.sets));
    std::string text = c.base;
    for (const std::string& set : c.sets) text += " " + set;
    SCOPED_TRACE(text);
    const PassVerdict verdict = verdict_of(r, 3);  // does not divide the twin's batch of 4; selftest --ranks has others
    EXPECT_TRUE(verdict.ok()) << verdict.why;
    ASSERT_FALSE(verdict.passes.empty());
    for (const PassCheck& pass : verdict.passes) EXPECT_LT(pass.error, 1e-10) << pass.name;
  }
}

TEST(Ranks, WhatARunCanHaveIsTheSameOnRanks) { expect_same_on_ranks(rank_cases()); }

TEST(Ranks, AndWithStateSplitAmongThem) {
  expect_same_on_ranks(sharded_cases());
  for (const RankCase& c : sharded_cases()) {
    const Recipe r = tiny_twin(load_recipe(c.base, c.sets));
    PassContext context = pass_context(r, find_backend("cpu").target({}));
    context.mesh = {3, 0};
    const StepSet set = run_pipeline(build_steps(r, describe_data(r), {}), context);
    const auto is_part = [](const StateSpec& s) { return s.part.is_part(); };
    const bool has_state = r.optimizer.name != "sgd" || context.options.get<ShardOptions>().level == 3;
    EXPECT_TRUE(!has_state || std::ranges::any_of(set.state, is_part)) << r.optimizer.name;
  }
}

// Ranks without a sample take part.
TEST(Ranks, MoreRanksThanSamples) {
  for (const char* base : {"mlp", "fashion_mnist", "gpt_tiny", "clipart_unet"}) {
    const Recipe r = tiny_twin(load_recipe(base, {}));
    const PassVerdict verdict = verdict_of(r, 7);
    EXPECT_TRUE(verdict.ok()) << base << ": " << verdict.why;
  }
}

}  // namespace
}  // namespace lathe
