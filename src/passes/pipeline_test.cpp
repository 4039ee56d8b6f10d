#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/grad.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "passes/autodiff.h"
#include "passes/check/random_graph.h"
#include "passes/check/validate.h"
#include "passes/dce.h"
#include "passes/identity.h"
#include "passes/pass.h"
#include "passes/test_util.h"

namespace lathe {
namespace {

Graph small_graph() {
  Builder b("g");
  const Value x = b.input({DType::f32, {3, 4}}, InputKind::batch, "x");
  const Value w = b.input({DType::f32, {4, 2}}, InputKind::param, "w");
  const Value loss = sum_all(tanh(matmul(x, w)));
  b.output(loss, OutputKind::metric, "loss");
  b.update(w, w - grad(loss, Values{w})[0] * 0.1);
  return b.finish();
}

Graph drop_half(Graph g, const PassContext&) {
  return rebuild(g, [](Rebuild& r, const Node& n) -> std::optional<Values> {
    if (!n.is("tanh")) return std::nullopt;
    return Values{tanh(r.mapped(n.inputs[0]) * (1 + 1e-6))};
  });
}

size_t place_of(std::string_view pass) {
  return static_cast<size_t>(std::ranges::find(pipeline(), pass, &PassEntry::name) - pipeline().begin());
}

TEST(Pipeline, ReportsEachPass) {
  std::vector<PassReport> reports;
  std::vector<std::string> seen;
  PipelineOptions options;
  options.on_pass = [&](const PassEntry& p, const StepSet& before, const StepSet& after) {
    seen.push_back(std::string(p.name));
    EXPECT_NE(before.graphs[0].nodes.size(), 0u);
    EXPECT_NE(after.graphs[0].nodes.size(), 0u);
  };
  const Graph g = run_pipeline(small_graph(), {}, options, &reports);
  ASSERT_EQ(reports.size(), pipeline().size());
  ASSERT_EQ(seen.size(), pipeline().size());
  for (size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].name, pipeline()[i].name);
    EXPECT_EQ(seen[i], reports[i].name);
    EXPECT_FALSE(reports[i].disabled);
  }
  const auto changed = [&](std::string_view name) { return reports[place_of(name)].changed; };
  EXPECT_FALSE(changed("gate"));       // no state is gated
  EXPECT_FALSE(changed("precision"));  // f32
  EXPECT_TRUE(changed("autodiff"));
  EXPECT_FALSE(changed("expand"));  // no composite here
  EXPECT_EQ(reports.back().nodes, g.nodes.size());
}

TEST(Pipeline, NamesAreUnique) {
  for (const PassEntry& a : pipeline())
    for (const PassEntry& b : pipeline()) EXPECT_TRUE(&a == &b || a.name != b.name);
}

TEST(Pipeline, SkipsByName) {
  std::vector<PassReport> reports;
  PipelineOptions options;
  options.disabled = {"fuse", "cse"};
  options.on_pass = [&](const PassEntry& p, const StepSet&, const StepSet&) {
    EXPECT_NE(p.name, "fuse");
    EXPECT_NE(p.name, "cse");
  };
  const Graph g = run_pipeline(small_graph(), {}, options, &reports);
  EXPECT_TRUE(std::ranges::none_of(g.nodes, [](const Node& n) { return n.is("fused"); }));
  EXPECT_EQ(std::ranges::count(reports, true, &PassReport::disabled), 2);
}

TEST(Pipeline, StopsAfter) {
  std::vector<PassReport> reports;
  PipelineOptions options;
  options.stop_after = "expand";
  run_pipeline(small_graph(), {}, options, &reports);
  ASSERT_EQ(reports.size(), place_of("expand") + 1);
  EXPECT_EQ(reports.back().name, "expand");
}

void expect_user_error(const PipelineOptions& options, const std::string& part) {
  try {
    run_pipeline(small_graph(), {}, options);
    FAIL() << "expected: " << part;
  } catch (const UserError& e) {
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Pipeline, RefusesUnknownAndRequiredNames) {
  PipelineOptions options;
  options.disabled = {"fuze"};
  expect_user_error(options, "did you mean \"fuse\"?");
  options.disabled = {"something_else"};
  expect_user_error(options, "known: sam, accumulate, ");
  options.disabled = {"autodiff"};
  expect_user_error(options, "cannot be disabled");
  options.disabled = {};
  options.stop_after = "csee";
  expect_user_error(options, "did you mean \"cse\"?");
}

TEST(Pipeline, AddedPassesRunInTheirPlace) {
  PipelineOptions options;
  options.added = {{"autodiff", {"mine", each_graph<drop_half>, Level::tensor}},
                   {"mine", {"later", each_graph<identity>, Level::tensor}},
                   {"", {"first", each_graph<identity>, Level::tensor}}};
  std::vector<std::string> ran;
  options.on_pass = [&](const PassEntry& p, const StepSet&, const StepSet&) { ran.emplace_back(p.name); };
  std::vector<PassReport> reports;
  run_pipeline(small_graph(), {}, options, &reports);
  EXPECT_EQ(ran[0], "first");
  const auto autodiff_at = static_cast<std::ptrdiff_t>(place_of("autodiff")) + 1;
  EXPECT_EQ(std::vector(ran.begin() + autodiff_at, ran.begin() + autodiff_at + 3),
            (std::vector<std::string>{"autodiff", "mine", "later"}));
  EXPECT_EQ(reports.size(), pipeline().size() + 3);
  EXPECT_TRUE(reports[static_cast<size_t>(autodiff_at) + 1].changed);
  EXPECT_EQ(pipeline_changes(options), (std::vector<std::string>{"+first", "+later", "+mine"}));

  options.disabled = {"mine"};
  ran.clear();
  run_pipeline(small_graph(), {}, options);
  EXPECT_EQ(std::ranges::count(ran, "mine"), 0);
  options.disabled = {};
  options.stop_after = "mine";
  ran.clear();
  run_pipeline(small_graph(), {}, options);
  EXPECT_EQ(ran.back(), "mine");
}

TEST(Pipeline, AddedPassesNeedANameOfTheirOwnAndAKnownPlace) {
  const auto add = [](const char* after, const char* name) {
    PipelineOptions options;
    options.added = {{after, {name, each_graph<identity>, Level::tensor}}};
    pipeline_with(options);
  };
  EXPECT_NO_THROW(add("fuse", "mine"));
  EXPECT_THROW(add("fuse", "cse"), UserError);
  EXPECT_THROW(add("nowhere", "mine"), UserError);
  EXPECT_THROW(add("fuse", ""), UserError);
}

TEST(Pipeline, VerifyNamesTheBrokenPass) {
  const PassEntry passes[] = {{"identity", each_graph<identity>, Level::tensor},
                              {"breaks",
                               [](StepSet s, const PassContext&) {
                                 s.graphs[0].nodes.erase(s.graphs[0].nodes.begin());
                                 return s;
                               },
                               Level::tensor}};
  try {
    run_passes(passes, set_of(small_graph()), {});
    FAIL();
  } catch (const InternalError& e) {
    EXPECT_NE(std::string(e.what()).find("after pass breaks"), std::string::npos) << e.what();
  }
}

// What a caller's pass breaks is the caller's to mend, and found before anything reads the graph.
TEST(Pipeline, AddedPassesThatBreakTheGraphAreUserErrors) {
  const std::pair<PassFunction, const char*> broken[] = {
      {[](StepSet s, const PassContext&) {
         s.graphs[0].nodes[0].inputs[0] = 99999;
         return s;
       },
       "pass mine"},
      {[](StepSet s, const PassContext&) {
         s.graphs[0].nodes[0].outputs[0] = 99999;
         return s;
       },
       "pass mine"},
      {[](StepSet s, const PassContext&) {
         s.graphs[0].inputs[0].value = 99999;
         return s;
       },
       "pass mine"},
      {[](StepSet s, const PassContext&) {
         std::swap(s.graphs[0].nodes.front(), s.graphs[0].nodes.back());
         return s;
       },
       "pass mine"},
      {[](StepSet s, const PassContext&) {
         s.graphs[0].outputs.pop_back();
         return s;
       },
       "expected to keep its outputs"},
      {[](StepSet s, const PassContext&) {
         s.graphs[0] = Graph{};
         return s;
       },
       "no graph reads or writes the state"},
      {[](StepSet s, const PassContext&) {
         s.graphs[0] = Graph{};
         s.state = {};
         return s;
       },
       "expected to keep the graph"},
      {[](StepSet, const PassContext&) { return StepSet{}; }, "expected to keep the 1 graphs"},
      {[](StepSet s, const PassContext&) {
         s.graphs.push_back(s.graphs[0]);
         s.graphs[1].name = "again";
         return s;
       },
       "expected to keep the 1 graphs"},
      {[](StepSet s, const PassContext&) {
         Graph& g = s.graphs[0];
         g.inputs.push_back({g.add_value({DType::f32, {}}), InputKind::step, "more"});
         return s;
       },
       "\"more\""},
      {[](StepSet s, const PassContext&) {
         Graph& g = s.graphs[0];
         g.inputs.push_back({g.add_value({DType::f32, {}}), InputKind::optimizer, "more"});
         return s;
       },
       "not in the table"},
      {[](StepSet s, const PassContext&) {
         Graph& g = s.graphs[0];
         g.inputs.push_back({g.add_value({DType::f32, {}}), InputKind::optimizer, "more"});
         s.state.add({"more", {DType::f32, {}}, InputKind::optimizer, {}, {}});
         return s;
       },
       "expected to keep the state table"},
  };
  for (const auto& [pass, part] : broken)
    for (const bool verify : {true, false}) {
      PipelineOptions options;
      options.verify = verify;
      options.added = {{"precision", {"mine", pass, Level::tensor}}};
      expect_user_error(options, part);
      expect_user_error(options, "pass mine");
    }
}

// A row says what a pass may touch; then it may.
TEST(Pipeline, APassMayAddStateInputsAndGraphs) {
  PipelineOptions options;
  const PassFunction adds = [](StepSet s, const PassContext&) {
    Edit e(s.graphs[0]);
    const Value count = e.state_input({"count", {DType::f32, {}}, InputKind::optimizer, {}, {}}, s.state);
    const Value by = e.builder().input({DType::f32, {}}, InputKind::step, "by");
    e.builder().update(count, count + by);
    s.graphs[0] = e.finish();
    s.graphs.push_back(s.graphs[0]);
    s.graphs[1].name = "again";
    return s;
  };
  options.added = {{"gate", {"adds", adds, Level::tensor, false, kTouchesState | kTouchesPorts | kTouchesGraphs}}};
  const StepSet s = run_pipeline(set_of(small_graph()), {}, options);
  EXPECT_EQ(s.graphs.size(), 2u);
  ASSERT_TRUE(s.state.find("count"));
  options.added[0].pass.touches = kTouchesState | kTouchesPorts;
  EXPECT_THROW(run_pipeline(set_of(small_graph()), {}, options), UserError);
  options.added[0].pass.touches = kTouchesPorts | kTouchesGraphs;
  EXPECT_THROW(run_pipeline(set_of(small_graph()), {}, options), UserError);
}

TEST(Pipeline, GraphsOfCallersAreVerified) {
  Graph g = small_graph();
  g.outputs[0].value = 99999;
  EXPECT_THROW(run_pipeline(g, {}), UserError);
}

struct Endless {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "endless", .doc = ""};
  static Types infer(ArgTypes x, const Params&) { return {x[0]}; }
  static Values expand(Builder& b, ArgValues x, const Params&);
  static std::vector<Sample> samples() { return {}; }
};
constexpr OpDef endless_op = make_op<Endless>();
// Twice: the graph doubles with each expansion.
Values Endless::expand(Builder& b, ArgValues x, const Params&) {
  return {b.add1(endless_op, x, NoParams{}) + b.add1(endless_op, x, NoParams{})};
}

// Expansions that are not what the type rule says.
template <int kKind>
struct Lies {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "lies", .doc = ""};
  static Types infer(ArgTypes x, const Params&) { return {x[0]}; }
  static Values expand(Builder&, ArgValues x, const Params&) {
    static Builder other;
    if (kKind == 0) return {};
    if (kKind == 1) return {sum_all(x[0])};
    return {other.input(x[0].type(), InputKind::batch, "x")};
  }
  static std::vector<Sample> samples() { return {}; }
};

TEST(Pipeline, ExpansionsThatDoNotFitTheTypeRuleAreRefused) {
  const auto refused = [](const OpDef& op) {
    for (const DType dtype : {DType::f32, DType::f16}) {
      Builder b("g");
      const Value x = b.input({dtype, {2}}, InputKind::param, "x");
      b.output(b.add1(op, std::span(&x, 1), NoParams{}), OutputKind::result, "y");
      try {
        run_pipeline(b.finish(), {});
        ADD_FAILURE();
      } catch (const UserError& e) {
        EXPECT_TRUE(std::string(e.what()).starts_with("lies: expected")) << e.what();
      }
    }
  };
  static constexpr OpDef kLies[] = {make_op<Lies<0>>(), make_op<Lies<1>>(), make_op<Lies<2>>()};
  for (const OpDef& op : kLies) refused(op);
}

TEST(Pipeline, ExpansionsWithoutEndAreRefused) {
  for (const bool derived : {false, true}) {
    Builder b("g");
    const Value x = b.input({DType::f32, {2}}, InputKind::param, "x");
    const Value y = b.add1(endless_op, std::span(&x, 1), NoParams{});
    b.output(derived ? grad(sum_all(y), Values{x})[0] : y, OutputKind::result, "y");
    try {
      run_pipeline(b.finish(), {});
      FAIL();
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find("endless: its expansion has no end"), std::string::npos) << e.what();
    }
  }
}

TEST(Pipeline, IdentityChangesNothing) {
  const Graph g = small_graph();
  EXPECT_TRUE(structurally_equal(g, identity(g, {})));
}

TEST(Validate, NamesThePlantedPass) {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  EXPECT_TRUE(validate_passes(set_of(small_graph()), passes, {}).ok());
  const size_t autodiff_at = place_of("autodiff"), planted = autodiff_at + 3;
  passes.insert(passes.begin() + static_cast<std::ptrdiff_t>(planted),
                {"planted", each_graph<drop_half>, Level::tensor});
  const PassVerdict v = validate_passes(set_of(small_graph()), passes, {});
  EXPECT_EQ(v.first_bad, "planted");
  EXPECT_NE(v.why.find("planted"), std::string::npos);
  ASSERT_EQ(v.passes.size(), passes.size());
  EXPECT_TRUE(v.passes[autodiff_at].compared);  // autodiff, against finite differences
  EXPECT_LT(v.passes[autodiff_at].error, 1e-7);
  EXPECT_GT(v.passes[planted].error, 1e-8);
  EXPECT_LT(v.passes[planted].error, 1e-4);
}

// Derivatives with one of two factors missing.
Graph wrong_autodiff(Graph g, const PassContext& context) {
  return rebuild(autodiff(std::move(g), context), [](Rebuild& r, const Node& n) -> std::optional<Values> {
    if (!n.is("matmul") || !n.get<MatmulParams>().trans_a) return std::nullopt;
    return Values{matmul(r.mapped(n.inputs[0]), r.mapped(n.inputs[1]), true, false) * 1.01};
  });
}

TEST(Validate, WrongDerivativesAreNamed) {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  passes[place_of("autodiff")].run = each_graph<wrong_autodiff>;
  const PassVerdict v = validate_passes(set_of(small_graph()), passes, {});
  EXPECT_EQ(v.first_bad, "autodiff") << v.why;
  EXPECT_NE(v.why.find("finite differences"), std::string::npos) << v.why;
}

TEST(Validate, RelativeError) {
  const auto t = [](std::vector<double> v) {
    return HostTensor{{DType::f32, {static_cast<int64_t>(v.size())}}, std::move(v)};
  };
  EXPECT_EQ(relative_error(t({1, NAN}), t({1, NAN})), 0);
  EXPECT_EQ(relative_error(t({1, INFINITY}), t({1, INFINITY})), 0);
  EXPECT_TRUE(std::isinf(relative_error(t({1, 2}), t({1, NAN}))));
  EXPECT_NEAR(relative_error(t({1, 10.1}), t({1, 10})), 0.01, 1e-12);
}

// Random graphs through the whole pipeline and with each optional pass left out: the results of the plain graph.
void check_random(uint64_t seed, const RandomGraphOptions& options, const Target& target) {
  const Graph g = random_graph(seed, options);
  ASSERT_NO_THROW(verify(g, Level::tensor, "random_graph")) << "seed " << seed;
  PassContext context{target};
  PipelineOptions only_required;
  for (const PassEntry& p : pipeline())
    if (!p.required) only_required.disabled.push_back(std::string(p.name));
  const Graph plain = run_pipeline(g, context, only_required);
  const auto inputs = random_inputs(plain, seed);
  const auto expected = interpret(plain, inputs, Precision::exact);

  std::vector<std::string> runs{""};
  for (const PassEntry& p : pipeline())
    if (!p.required && p.promise == Promise::preserves) runs.emplace_back(p.name);
  for (const std::string& disabled : runs) {
    PipelineOptions o;
    if (!disabled.empty()) o.disabled = {disabled};
    Graph now;
    ASSERT_NO_THROW(now = run_pipeline(g, context, o)) << "seed " << seed << ", without \"" << disabled << "\"";
    // Merging kept an order in which every reader of old state comes before its writer.
    if (disabled != "fuse") {
      ASSERT_NO_THROW(verify(now, Level::lowered, "fuse")) << "seed " << seed;
    }
    const auto results = interpret(now, inputs, Precision::exact);
    for (size_t i = 0; i < results.size(); ++i)
      ASSERT_LT(relative_error(results[i], expected[i]), 1e-9)
          << "seed " << seed << ", without \"" << disabled << "\", output " << g.outputs[i].name << "\n"
          << print(g);
  }
}

class RandomGraphs : public ::testing::TestWithParam<int> {};

TEST_P(RandomGraphs, KeepTheirResults) {
  Target all, some;
  some.native_ops = {"matmul", "softmax"};
  some.fuse_max_inputs = 4;
  for (int i = 0; i < 15; ++i) {
    const uint64_t seed = static_cast<uint64_t>(GetParam() * 1000 + i);
    check_random(seed, {.nodes = 10 + i * 5, .gradient = i % 2 == 0}, i % 3 == 0 ? some : all);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomGraphs, ::testing::Range(0, 8));

class RandomKinds : public ::testing::TestWithParam<RandomGraphKind> {};

TEST_P(RandomKinds, KeepTheirResults) {
  Target all, some;
  some.native_ops = {"matmul", "softmax"};
  some.fuse_max_inputs = 4;
  for (int i = 0; i < 40; ++i) {
    check_random(static_cast<uint64_t>(i), {.nodes = 6 + i % 8 * 4, .kind = GetParam()}, i % 3 == 0 ? some : all);
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RandomKinds,
                         ::testing::Values(RandomGraphKind::products, RandomGraphKind::losses,
                                           RandomGraphKind::shared));

}  // namespace
}  // namespace lathe
