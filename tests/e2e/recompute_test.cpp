// memory.budget: what is computed again has the same bits, on every device.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "backend/backend.h"
#include "loop/trainer.h"
#include "process.h"
#include "report/memory_curve.h"

namespace lathe::test {
namespace {

struct Net {
  const char* recipe;
  Sets sets;
};

const Net kCnn{"fashion_mnist",
               {"data.source=synthetic", "data.train_samples=160", "data.test_samples=16", "train.batch_size=16",
                "train.eval_batch=2", "train.steps=10", "train.eval_every=0", "model.channels=[8,16]", "model.dense=32",
                "model.dropout=0.3", "checkpoint.every_epochs=0"}};
const Net kGpt{
    "gpt_tiny",
    {"data.path=", "model.layers=3", "model.width=32", "model.sequence=32", "model.dropout=0.1", "train.batch_size=4",
     "train.eval_batch=1", "data.test_samples=2", "train.steps=10", "train.eval_every=0", "checkpoint.every_epochs=0"}};

// Weights, moments and losses after ten steps.
std::string train(const Net& net, const std::string& device, int64_t budget) {
  const TempDir dir;
  std::vector<std::string> args{"train", net.recipe, "--device", device, "--quiet", "--json", "--out", dir.path("run")};
  Sets sets = net.sets;
  sets.push_back("train.log_every=1");
  if (budget > 0) sets.push_back(fmt::format("memory.budget={}", budget));
  for (const std::string& s : sets) args.insert(args.end(), {"--set", s});
  const Outcome r = run_lathe(args);
  EXPECT_EQ(r.code, 0) << r.err;
  if (r.code != 0) return r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_EQ(j["memory_predicted"], j["memory_allocated"]);
  if (budget > 0) {
    EXPECT_LE(j["memory_allocated"].get<int64_t>(), budget);
  }
  const std::string at = newest_checkpoint(dir.path("run"));
  return read_file(at + "/model.safetensors") + read_file(at + "/optimizer.safetensors");
}

// From the refusal of one that is too small.
int64_t smallest_budget(Recipe r) {
  r.memory.budget.bytes = 1000;
  try {
    compile(r, describe_data(r));
    ADD_FAILURE() << "expected a refusal";
  } catch (const Error& e) {
    EXPECT_EQ(e.exit_code(), Exit::os_error);
    const std::string text = e.what(), before = "the smallest budget that can be met is ";
    const size_t at = text.find(before);
    if (at != std::string::npos) return std::stoll(text.substr(at + before.size()));
    ADD_FAILURE() << text;
  }
  return 0;
}

// With half of the activation bytes, or with the smallest budget there is. There, dropout must be among what runs again
// in the net that has it in every block.
void expect_same_bits(const Net& net, const std::string& device, bool smallest) {
  Sets sets = net.sets;
  sets.push_back("device=" + device);
  Recipe r = load_recipe(net.recipe, sets);
  const Compiled c = compile(r, describe_data(r));
  const MemoryReport& m = c.set.programs[c.program("train")].memory;
  const int64_t budget = smallest ? smallest_budget(r) : c.memory().total() - m.of(MemoryClass::activations) / 2;
  r.memory.budget.bytes = budget;
  const Compiled tight = compile(r, describe_data(r));
  std::set<std::string> again;
  for (const Launch& l : tight.set.programs[tight.program("train")].launches)
    if (l.again) again.insert(std::string(l.node.op->name()));
  EXPECT_FALSE(again.empty());
  if (smallest && &net == &kGpt) {
    EXPECT_TRUE(again.contains("dropout")) << fmt::format("{}", fmt::join(again, " "));
  }
  const std::string free = train(net, device, 0);
  ASSERT_GT(free.size(), 1000u) << free;
  EXPECT_TRUE(free == train(net, device, budget)) << net.recipe << " on " << device;
}

TEST(Recompute, CnnHasTheSameBitsOnCpu) { expect_same_bits(kCnn, "cpu", true); }
TEST(Recompute, CnnHasTheSameBitsOnRef) { expect_same_bits(kCnn, "ref", true); }
TEST(Recompute, GptHasTheSameBitsOnCpu) {
  expect_same_bits(kGpt, "cpu", false);
  expect_same_bits(kGpt, "cpu", true);
}
TEST(Recompute, GptHasTheSameBitsOnRef) { expect_same_bits(kGpt, "ref", false); }
TEST(Recompute, GptHasTheSameBitsOnOpenCl) {
  if (find_backend("opencl").devices().empty()) GTEST_SKIP() << find_backend("opencl").unavailable_reason();
  expect_same_bits(kGpt, "opencl", false);
}

TEST(Recompute, RefusalNamesTheSmallestBudgetAndThatOneWorks) {
  Recipe r = load_recipe(kGpt.recipe, kGpt.sets);
  const DataSpec data = describe_data(r);
  const int64_t smallest = smallest_budget(r);
  r.memory.budget.bytes = smallest;
  EXPECT_LE(compile(r, data).memory().total(), smallest);
  r.memory.budget.bytes = smallest * 98 / 100;
  EXPECT_THROW(compile(r, data), Error);
}

// Batches of evaluation that hold the peak give way to a budget, and the loss is the same but for the order of its sum.
TEST(Recompute, EvaluationDoesNotHoldThePeak) {
  Sets sets = kCnn.sets;
  sets.insert(sets.end(), {"data.test_samples=130", "train.eval_batch=128"});
  Recipe r = load_recipe(kCnn.recipe, sets), training = load_recipe(kCnn.recipe, kCnn.sets);
  const DataSpec data = describe_data(r);
  const Compiled whole = compile(r, data);
  EXPECT_EQ(whole.eval_batch, 128);
  const auto scratch = [](const Compiled& c, const char* program) {
    return c.set.programs[c.program(program)].memory.scratch;
  };
  ASSERT_GT(scratch(whole, "eval"), scratch(whole, "train"));
  r.memory.budget.bytes = smallest_budget(training) * 101 / 100;
  ASSERT_LT(r.memory.budget.bytes, whole.memory().total() / 2);
  const Compiled tight = compile(r, data);
  EXPECT_EQ(tight.eval_batch, 16) << "of training";
  EXPECT_LE(tight.memory().total(), r.memory.budget.bytes);
  EXPECT_GT(recomputed(tight.set.programs[tight.program("train")]).launches, 0);

  CompileOptions evaluation;
  evaluation.train = false;
  Recipe smaller = load_recipe(kCnn.recipe, sets);
  smaller.train.eval_batch = 4;
  smaller.memory.budget.bytes = compile(smaller, data, evaluation).memory().total();
  smaller.train.eval_batch = 128;
  EXPECT_EQ(compile(smaller, data, evaluation).eval_batch, 4);

  const TempDir dir;
  double losses[2] = {};
  for (const bool budget : {false, true}) {
    TrainOptions o;
    o.out = dir.path(budget ? "tight" : "free");
    Recipe own = r;
    if (!budget) own.memory.budget = {};
    const TrainResult t = train(own, o);
    EXPECT_EQ(t.test->samples, 130);
    losses[budget] = t.eval_loss;
  }
  EXPECT_NEAR(losses[1], losses[0], 1e-6 * losses[0]);

  const MemoryCurve curve = memory_curve(r, data, {}, 8);
  ASSERT_GE(curve.points.size(), 5u);
  EXPECT_EQ(curve.points.front().budget + curve.rest, whole.memory().total());
  EXPECT_LT(curve.points.back().budget + curve.rest, whole.memory().total() / 2);
  EXPECT_GT(curve.points.back().launches, 0);
  r.memory.budget.bytes = curve.points.back().budget + curve.rest;
  EXPECT_LE(compile(r, data).memory().total(), r.memory.budget.bytes);
}

TEST(Recompute, CurveIsPrintedAndDrawn) {
  const TempDir dir;
  std::vector<std::string> args{"plan", kGpt.recipe, "--curve", "--svg", dir.path("c.svg")};
  for (const std::string& s : kGpt.sets) args.insert(args.end(), {"--set", s});
  const Outcome table = run_lathe(args);
  ASSERT_EQ(table.code, 0) << table.err;
  for (const char* part : {"memory.budget", "more FLOP", "more time", "c.svg"})
    EXPECT_NE(table.out.find(part), std::string::npos) << table.out;
  const std::string svg = read_file(dir.path("c.svg"));
  EXPECT_EQ(svg.find("<svg"), svg.find('<')) << svg.substr(0, 200);
  EXPECT_NE(svg.find("predicted ms per step"), std::string::npos);
  args.push_back("--json");
  const Outcome json = run_lathe(args);
  ASSERT_EQ(json.code, 0) << json.err;
  const auto j = nlohmann::json::parse(json.out);
  const auto& points = j["points"];
  ASSERT_GE(points.size(), 5u);
  EXPECT_EQ(points[0]["run_again"], 0);
  EXPECT_EQ(points[0]["more_flops_percent"], 0);
  for (size_t i = 1; i < points.size(); ++i) {
    EXPECT_LT(points[i]["arena_bytes"].get<int64_t>(), points[i - 1]["arena_bytes"].get<int64_t>());
    EXPECT_GT(points[i]["seconds"].get<double>(), points[0]["seconds"].get<double>());
  }
  // What the curve says is what a run with that budget is planned with.
  Recipe r = load_recipe(kGpt.recipe, kGpt.sets);
  r.memory.budget.bytes = points.back()["budget"];
  EXPECT_EQ(compile(r, describe_data(r)).set.arena_bytes, points.back()["arena_bytes"].get<int64_t>());
}

}  // namespace
}  // namespace lathe::test
