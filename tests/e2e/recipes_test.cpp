// The built-in recipes: the default one for an epoch, every pass proved on tiny twins, random graphs on devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

#include "backend/backend.h"
#include "ir/interpret.h"
#include "ir/rewrite.h"
#include "loop/trainer.h"
#include "ops/elementwise.h"
#include "passes/check/random_graph.h"
#include "process.h"
#include "run/run_graph.h"
#include "selftest/selftest.h"

namespace lathe {
namespace {

using test::run_lathe;
using test::TempDir;

TEST(Recipes, DefaultForOneEpoch) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  // An epoch takes many minutes under a sanitizer: some steps, and no demand on the accuracy.
  const char* length = "train.steps=20";
  const double least_accuracy = 0;
  const int least_right = 0;
#else
  const char* length = "train.epochs=1";
  const double least_accuracy = 0.86;
  const int least_right = 15;
#endif
  const TempDir dir;
  const auto r = run_lathe({"train", "--set", length, "--out", dir.path("run"), "--json"});
  ASSERT_EQ(r.code, 0) << r.err;
  const auto j = nlohmann::json::parse(r.out);
  EXPECT_GT(j["test_accuracy"].get<double>(), least_accuracy);
  EXPECT_EQ(j["memory_predicted"], j["memory_allocated"]);
  const auto e = run_lathe({"eval", dir.path("run"), "--json"});
  ASSERT_EQ(e.code, 0) << e.err;
  EXPECT_EQ(nlohmann::json::parse(e.out)["accuracy"], j["test_accuracy"]) << "eval sees what training saw";
  const auto p = run_lathe({"predict", dir.path("run"), "test:0-19", "--json"});
  ASSERT_EQ(p.code, 0) << p.err;
  const auto list = nlohmann::json::parse(p.out);
  ASSERT_EQ(list.size(), 20u);
  // The first labels of the test set; a net of one epoch gets most of them.
  const int truth[] = {9, 2, 1, 1, 6, 1, 4, 6, 5, 7, 4, 5, 7, 3, 4, 1, 2, 4, 8, 0};
  int right = 0;
  for (size_t i = 0; i < 20; ++i) right += list[i]["label"] == truth[i];
  EXPECT_GE(right, least_right);
}

TEST(Recipes, TinyTwinsTrainOnRefInSeconds) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  const double most = 120;
#else
  const double most = 5;
#endif
  for (const BuiltinRecipe& b : builtin_recipes()) {
    const TempDir dir;
    Recipe r = tiny_twin(parse_recipe(b.text, std::string(b.name)));
    r.device = {.name = "ref", .threads = 0};
    const std::clock_t begin = std::clock();  // of the processor: others may use the machine
    TrainOptions o;
    o.out = dir.path("run");
    const TrainResult t = train(r, o);
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    EXPECT_EQ(t.steps, r.train.steps) << b.name;
    EXPECT_TRUE(std::isfinite(t.loss)) << b.name;
    EXPECT_LT(seconds, most) << b.name;
  }
}

TEST(Recipes, EveryPassKeepsTheNumbers) {
  const auto verdicts = selftest_passes(pipeline(), find_backend("cpu").target({}));
  EXPECT_GE(verdicts.size(), 9u);
  for (const GraphVerdict& v : verdicts)
    for (const PassCheck& p : v.verdict.passes)
      // Dense layers and mean squares alone leave nothing to expand.
      if ((p.name == "expand" && v.recipe != "diamonds") || p.name == "autodiff") {
        EXPECT_TRUE(p.compared) << v.recipe << " " << v.program << " " << p.name;
      }
  for (const GraphVerdict& v : verdicts)
    EXPECT_TRUE(v.verdict.ok()) << v.recipe << " " << v.program << ": " << v.verdict.first_bad << ": " << v.verdict.why;
}

// Turns the first subtraction of a graph around.
Graph wrong_pass(Graph g, const PassContext&) {
  bool done = false;
  return rebuild(g, [&](Rebuild& r, const Node& n) -> std::optional<Values> {
    if (done || !n.is("sub")) return std::nullopt;
    done = true;
    return Values{sub(r.mapped(n.inputs[1]), r.mapped(n.inputs[0]))};
  });
}

TEST(Recipes, APlantedWrongPassIsNamed) {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  const auto after = std::ranges::find(passes, "cse", &PassEntry::name);
  ASSERT_NE(after, passes.end());
  passes.insert(after + 1, {"turn_around", each_graph<wrong_pass>, Level::tensor, false});
  int named = 0;
  for (const GraphVerdict& v : selftest_passes(passes, find_backend("cpu").target({}))) {
    if (v.verdict.ok()) continue;
    EXPECT_EQ(v.verdict.first_bad, "turn_around") << v.recipe << " " << v.program;
    ++named;
  }
  EXPECT_GE(named, 3);
}

// Both are, but for the rounding of numbers around 1 in f32.
bool is_zero(const HostTensor& actual, const HostTensor& expected) {
  const auto is_rounding = [](double x) { return std::abs(x) < 2e-7; };
  return actual.type == expected.type && is_float(expected.type.dtype) &&
         std::ranges::all_of(actual.data, is_rounding) && std::ranges::all_of(expected.data, is_rounding);
}

// Random graphs through the pipeline and onto a device, with all passes and with each one left out.
void random_graphs(const std::string& device, int graphs, bool each_pass) {
  const Backend& backend = find_backend(device);
  const PassContext context{backend.target({})};
  for (int seed = 1; seed <= graphs; ++seed) {
    const Graph g = random_graph(static_cast<uint64_t>(seed));
    const auto inputs = random_inputs(g, static_cast<uint64_t>(seed));
    const auto expected = interpret(g, inputs, Precision::exact);
    std::vector<std::string> variants{""};
    if (each_pass)
      for (const PassEntry& p : pipeline())
        if (!p.required && p.promise == Promise::preserves) variants.emplace_back(p.name);
    for (const std::string& disabled : variants) {
      PipelineOptions o;
      if (!disabled.empty()) o.disabled = {disabled};
      const auto actual = run_graph(backend, {}, run_pipeline(g, context, o), inputs);
      for (size_t i = 0; i < expected.size(); ++i)
        ASSERT_TRUE(relative_error(actual[i], expected[i]) < 2e-4 || is_zero(actual[i], expected[i]))
            << device << ", seed " << seed << ", without " << disabled << ", output " << i;
    }
  }
}

TEST(Recipes, RandomGraphsOnCpu) { random_graphs("cpu", test::all_tests() ? 400 : 60, true); }
TEST(Recipes, RandomGraphsOnRef) { random_graphs("ref", 20, false); }

TEST(OpenClGraphs, RandomGraphs) {
  if (find_backend("opencl").devices().empty()) GTEST_SKIP() << find_backend("opencl").unavailable_reason();
  random_graphs("opencl", test::all_tests() ? 40 : 3, false);
}

}  // namespace
}  // namespace lathe
