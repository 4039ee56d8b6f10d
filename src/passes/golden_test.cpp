// Each pass on a graph of its own, as text: golden/PASS.ir holds the graph before, a line `=>`, and the graph after.
// LATHE_UPDATE_GOLDEN=1 writes what the passes do now.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <sstream>

#include "ops/conv2d.h"
#include "ops/cross_entropy.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/grad.h"
#include "ops/gradient.h"
#include "ops/layer_norm.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/transpose.h"
#include "passes/partition/shard_state.h"
#include "passes/precision.h"
#include "passes/techniques/table.h"
#include "passes/test_util.h"

namespace lathe {
namespace {

constexpr std::string_view kArrow = "\n=>\n";

Target primitive_target() {
  Target t;
  t.native_ops.clear();
  return t;
}

// A layer, a norm, a loss and an update: every pass of the pipeline but layout changes it.
Graph small_training_step() {
  Builder b("step");
  const Value x = b.input({DType::f32, {4, 6}}, InputKind::batch, "x");
  const Value y = b.input({DType::i32, {4}}, InputKind::batch, "y");
  const Value w = b.input({DType::f32, {6, 3}}, InputKind::param, "w");
  const Value bias = b.input({DType::f32, {3}}, InputKind::param, "b");
  const Value h = relu(matmul(x, w) + bias);
  const Value loss = sum_all(cross_entropy(h, y, 0.0)) * 0.25;
  b.output(loss, OutputKind::metric, "loss");
  const Values g = grad(loss, Values{w, bias});
  b.update(w, w - g[0] * 0.1);
  b.update(bias, bias - g[1] * 0.1);
  return b.finish();
}

// What an importer of a model with channels first builds: each layer between two transposes.
Graph channels_first() {
  Builder b("channels_first");
  const Ints to_last{0, 2, 3, 1}, to_first{0, 3, 1, 2};
  Value x = b.input({DType::f32, {2, 3, 8, 8}}, InputKind::batch, "x");
  for (int i = 0; i < 2; ++i) {
    const int64_t in = i == 0 ? 3 : 4;
    const Value w = b.input({DType::f32, {4, 3, 3, in}}, InputKind::param, "w" + std::to_string(i));
    x = transpose(conv2d(transpose(x, to_last), w, Conv2dParams{}), to_first);
    x = relu(x) * 0.5;
  }
  b.output(reduce_sum(x, {2, 3}), OutputKind::result, "pooled");
  return b.finish();
}

Graph with_dead_nodes() {
  Builder b("dead");
  const Value x = b.input({DType::f32, {4, 6}}, InputKind::batch, "x");
  const Value unused = tanh(x) * 2.0;
  b.output(relu(x), OutputKind::result, "y");
  static_cast<void>(exp(unused));
  return b.finish();
}

size_t transposes(const Graph& g) {
  return static_cast<size_t>(std::ranges::count_if(g.nodes, [](const Node& n) { return n.is("transpose"); }));
}

// A layer with dropout, a running mean, momentum.
Graph training_graph(const std::string& name, int64_t batch) {
  Builder b(name);
  const Value x = b.input({DType::f32, {batch, 6}}, InputKind::batch, "x");
  const Value y = b.input({DType::i32, {batch}}, InputKind::batch, "y");
  const Value index = b.input({DType::i64, {batch}}, InputKind::batch, "index");
  const Value key = b.input({DType::i64, {2}}, InputKind::step, "key");
  const Value w = b.input({DType::f32, {6, 3}}, InputKind::param, "w");
  const Value mean = b.input({DType::f32, {6}}, InputKind::buffer, "mean");
  const Value h = dropout(matmul(x - mean, w), key, index, 0.25, 5);
  Value loss, g;
  {
    const Origin origin(b, "loss", Role::loss);
    loss = sum_all(cross_entropy(h, y, 0.0)) * 0.25;
    g = grad(loss, Values{w})[0];
  }
  const Origin origin(b, "update", Role::update);
  g = gradient(g, "w");
  const Value m = b.input(w.type(), InputKind::optimizer, "w.momentum");
  const Value now = m * 0.9 + g;
  b.update(m, now);
  b.update(w, w - now * 0.1);
  b.set_role(Role::model);
  b.update(mean, mean * 0.9 + reduce_mean(x, {0}) * 0.1);
  b.output(loss, OutputKind::metric, "loss");
  return b.finish();
}

// A step with its table: training, its tail batch, evaluation.
StepSet trained_layer() {
  StepSet s;
  const auto row = [&](const char* name, TensorType type, InputKind kind, StateFile file, const char* of = "") {
    StateSpec spec{name, type, kind, Init::uniform(0.5), {}};
    spec.gated = true;
    spec.saved_in = file;
    spec.of = of;
    s.state.add(spec);
  };
  row("w", {DType::f32, {6, 3}}, InputKind::param, StateFile::model);
  row("mean", {DType::f32, {6}}, InputKind::buffer, StateFile::model);
  row("w.momentum", {DType::f32, {6, 3}}, InputKind::optimizer, StateFile::optimizer, "w");
  s.graphs.push_back(training_graph("train", 4));
  s.graphs.push_back(training_graph("train_tail", 2));
  Builder b("eval");
  const Value x = b.input({DType::f32, {4, 6}}, InputKind::batch, "x");
  const Value w = b.input({DType::f32, {6, 3}}, InputKind::param, "w");
  const Value mean = b.input({DType::f32, {6}}, InputKind::buffer, "mean");
  b.output(matmul(x - mean, w), OutputKind::result, "logits");
  s.graphs.push_back(b.finish());
  return s;
}

// Whether it is about the state table; its options are set so that it has work to do.
bool turn_on(const std::string& name, PassOptions& o) {
  if (name == "sam")
    o.set(SamOptions{0.05});
  else if (name == "accumulate")
    o.set(AccumulateOptions{2});
  else if (name == "centralize")
    o.set(CentralizeOptions{true});
  else if (name == "clip_value")
    o.set(ClipValueOptions{0.5});
  else if (name == "lookahead")
    o.set(LookaheadOptions{5});
  else if (name == "clip_norm")
    o.set(ClipNormOptions{1});
  else if (name == "loss_scale")
    o.set(LossScaleOptions{1024, 200}).set(PrecisionOptions{"f16"});
  else if (name == "average")
    o.set(AverageOptions{0.9});
  else if (name == "precision")
    return o.set(PrecisionOptions{"bf16"}), false;
  else if (name == "shard_state")
    o.set(ShardOptions{1, 1});
  else
    return name == "gate";
  return true;
}

// The table matters to techniques; single graphs are shown as they are.
std::string text_of(const StepSet& s) { return s.graphs.size() == 1 ? print(s.graphs[0]) : print(s); }

class Golden : public ::testing::TestWithParam<std::string> {};

TEST_P(Golden, TextIsCurrent) {
  const std::string name = GetParam();
  PassContext context{primitive_target()};
  context.options.set(GateOptions{.update = "after_all"});
  const bool technique = turn_on(name, context.options);
  if (name == "shard_state" || name == "partition" || name == "vote" || name == "bucket") context.mesh = {2, 0};
  // The graph as the passes before this one leave it.
  std::string before, after;
  PipelineOptions options;
  options.stop_after = name;
  options.on_pass = [&](const PassEntry& p, const StepSet& from, const StepSet& to) {
    if (p.name != name) return;
    before = text_of(from);
    after = text_of(to);
    EXPECT_FALSE(structurally_equal(from, to)) << name << " does nothing here: the golden file would show nothing";
  };
  if (name == "dce")  // the passes before it leave nothing dead in a graph that they change
    run_passes(std::span(std::ranges::find(pipeline(), "dce", &PassEntry::name), 1), set_of(with_dead_nodes()), context,
               options);
  else if (technique)
    run_pipeline(trained_layer(), context, options);
  else
    run_pipeline(name == "layout" ? channels_first() : small_training_step(), context, options);
  const std::string path = std::string(LATHE_GOLDEN_DIR) + "/" + name + ".ir";
  const std::string text = before + std::string(kArrow) + after + "\n";
  if (std::getenv("LATHE_UPDATE_GOLDEN")) std::ofstream(path) << text;
  std::ifstream file(path);
  std::ostringstream golden;
  golden << file.rdbuf();
  EXPECT_EQ(golden.str(), text) << path << ": look at the difference, then write it with LATHE_UPDATE_GOLDEN=1";
}

INSTANTIATE_TEST_SUITE_P(Passes, Golden, ::testing::ValuesIn([] {
                           std::vector<std::string> names;
                           for (const PassEntry& p : pipeline()) names.emplace_back(p.name);
                           return names;
                         }()),
                         [](const auto& info) { return info.param; });

// Both directions of a product are products of 16 bits, and nothing else is.
TEST(Precision, GradientsOfProductsFollow) {
  const Graph g =
      run_pipeline(small_training_step(), {primitive_target(), PassOptions().set(PrecisionOptions{"bf16"})});
  int products = 0;
  const std::function<void(const Graph&)> count = [&](const Graph& body) {
    for (const Node& n : body.nodes) {
      if (n.is("fused")) count(*n.get<FusedParams>().body);
      if (n.is("matmul")) ++products;
      const bool any_type = n.is("cast") || n.is("fused") || n.is("transpose") || n.is("reshape") || n.is("broadcast");
      for (ValueId v : n.outputs) {
        EXPECT_TRUE(any_type || is_16bit(body.type(v).dtype) == n.is("matmul")) << n.op->name();
      }
    }
  };
  count(g);
  EXPECT_EQ(products, 2) << print(g);  // forward, and the weights' gradient: x needs none
  for (const Output& o : g.outputs) EXPECT_EQ(g.type(o.value).dtype, DType::f32) << o.name;
  // Where values are not rounded, casts change nothing.
  const Graph convolutions = channels_first();
  expect_same_meaning(convolutions, run_pipeline(convolutions, {{}, PassOptions().set(PrecisionOptions{"f16"})}));
}

TEST(Layout, TransposesOfAnImportedModelCancel) {
  const Graph g = channels_first();
  EXPECT_EQ(transposes(g), 4u);
  const Graph now = run_pipeline(g, {});
  EXPECT_EQ(transposes(now), 1u) << print(now);  // the input's own: its memory has channels first
  expect_same_meaning(g, now);
}

}  // namespace
}  // namespace lathe
