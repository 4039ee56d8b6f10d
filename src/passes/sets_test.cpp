// Passes on sets of several graphs: several networks, tail batches, custom graphs; and what the driver and the proof
// see of a pass that loses something.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/grad.h"
#include "ops/gradient.h"
#include "ops/reduce.h"
#include "passes/check/validate.h"
#include "passes/dce.h"
#include "passes/techniques/table.h"
#include "passes/test_util.h"

namespace lathe {
namespace {

struct StepOptions {
  std::string of = "net";       // of the names of its state
  int64_t batch = 4;            // samples
  bool marked = true;           // gradients have their markers
  double decay = 0;             // of the weight, in the update
  std::string metric = "seen";  // beside the loss
};

// A weight that is trained and a running mean.
StepSet step(const std::string& name, const StepOptions& o) {
  StepSet s;
  const TensorType type{DType::f32, {3}};
  for (const InputKind kind : {InputKind::param, InputKind::buffer}) {
    StateSpec row{o.of + (kind == InputKind::param ? ".w" : ".mean"), type, kind, Init::constant(1), {}};
    row.gated = true;
    row.saved_in = StateFile::model;
    s.state.add(row);
  }
  Builder b(name);
  const Value x = b.input({DType::f32, {o.batch, 3}}, InputKind::batch, "x");
  b.input({DType::i64, {o.batch}}, InputKind::batch, "index");  // which nothing reads
  const Value w = b.input(type, InputKind::param, o.of + ".w"), mean = b.input(type, InputKind::buffer, o.of + ".mean");
  Value loss, g;
  {
    const Origin origin(b, "loss", Role::loss);
    loss = sum_all(square((x - mean) * w));
    g = grad(loss, Values{w})[0];
  }
  const Origin origin(b, "update", Role::update);
  if (o.marked) g = gradient(g, o.of + ".w");
  b.update(w, w * (1 - o.decay) - g * 0.01);
  b.set_role(Role::model);
  b.update(mean, mean * 0.9 + reduce_mean(x, {0}) * 0.1);
  b.output(loss, OutputKind::metric, "loss");
  b.output(sum_all(x), OutputKind::metric, o.metric);
  s.graphs.push_back(b.finish());
  return s;
}

StepSet joined(StepSet a, StepSet b) {
  merge(a, std::move(b));
  return a;
}
StepSet two_networks() { return joined(step("gen", {"gen"}), step("disc", {"disc"})); }
StepSet with_tail() { return joined(step("train", {}), step("train_tail", {.batch = 2})); }

template <class... T>
PassContext context_of(T... options) {
  PassContext context;
  context.options.set(GateOptions{.update = "after_all"});
  (context.options.set(std::move(options)), ...);
  return context;
}

StepSet run_until(std::string_view pass, StepSet set, const PassContext& context) {
  PipelineOptions options;
  options.stop_after = pass;
  return run_pipeline(std::move(set), context, options);
}

std::vector<std::string> names_of(const StepSet& s) {
  std::vector<std::string> out;
  for (const Graph& g : s.graphs) out.push_back(g.name);
  return out;
}

std::vector<std::string> written_by(const StepSet& s, std::string_view graph) {
  const Graph* g = s.find_graph(graph);
  if (!g) return {"no graph of that name"};
  std::vector<std::string> out;
  for (const Output& o : g->outputs)
    if (o.kind == OutputKind::state) out.push_back(o.name);
  return out;
}

template <class F>
void expect_user_error(F&& f, std::initializer_list<const char*> parts) {
  try {
    f();
    ADD_FAILURE() << "no error; expected one with " << *parts.begin();
  } catch (const UserError& e) {
    for (const char* part : parts) EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

using Names = std::vector<std::string>;

TEST(Accumulate, EachNetworkHasItsUpdate) {
  const PassContext context = context_of(AccumulateOptions{2});
  const StepSet s = run_until("accumulate", two_networks(), context);
  EXPECT_EQ(names_of(s), (Names{"gen_accumulate", "update_gen", "disc_accumulate", "update_disc"}));
  EXPECT_EQ(written_by(s, "update_gen"), (Names{"gen.w", "gen.w.grad"}));
  EXPECT_EQ(written_by(s, "update_disc"), (Names{"disc.w", "disc.w.grad"}));
  const PassVerdict v = validate_passes(two_networks(), pipeline(), context);
  EXPECT_TRUE(v.ok()) << v.why;
}

TEST(Accumulate, TailsShareTheUpdateOfTheStep) {
  const PassContext context = context_of(AccumulateOptions{2});
  EXPECT_EQ(names_of(run_until("accumulate", with_tail(), context)),
            (Names{"accumulate", "accumulate_tail", "update"}));
  // The update of "train" keeps its name beside other networks.
  EXPECT_EQ(names_of(run_until("accumulate", joined(with_tail(), step("disc", {"disc"})), context)),
            (Names{"accumulate", "accumulate_tail", "update", "disc_accumulate", "update_disc"}));
  expect_user_error(
      [&] {
        run_until("accumulate", joined(step("train", {}), step("train_tail", {.batch = 2, .decay = 0.1})), context);
      },
      {"accumulate: graphs \"train\" and \"train_tail\" update \"net.w\" in different ways"});
}

TEST(Accumulate, NamesThatAreTaken) {
  const PassContext context = context_of(AccumulateOptions{2});
  Builder b("update");
  b.output(relu(b.input({DType::f32, {2}}, InputKind::batch, "z")), OutputKind::result, "y");
  const StepSet own = set_of(b.finish());
  for (const StepSet& s : {joined(own, step("train", {})), joined(step("train", {}), own)})
    expect_user_error([&] { run_until("accumulate", s, context); }, {"accumulate:", "named \"update\""});
  // The graph itself goes.
  EXPECT_EQ(names_of(run_until("accumulate", step("update", {}), context)), (Names{"update_accumulate", "update"}));
}

// ---- passes that lose something

using Loses = void (*)(StepSet&);
template <Loses lose>
StepSet losing(StepSet s, const PassContext&) {
  lose(s);
  return s;
}

void lose_outputs(Graph& g, auto&& which) { std::erase_if(g.outputs, which); }
void all_updates(StepSet& s) {
  for (Graph& g : s.graphs) lose_outputs(g, [](const Output& o) { return o.kind == OutputKind::state; });
}
void last_update(StepSet& s) {
  lose_outputs(s.graphs.back(), [](const Output& o) { return o.name == "disc.mean"; });
}
void all_metrics(StepSet& s) {
  for (Graph& g : s.graphs) lose_outputs(g, [](const Output& o) { return o.kind == OutputKind::metric; });
}
void first_metric(StepSet& s) {
  lose_outputs(s.graphs.front(), [](const Output& o) { return o.name == "loss"; });
}
void last_graph(StepSet& s) {
  s.graphs.pop_back();
  drop_unused_state(s);
}

struct Lost {
  const char* what;
  PassFunction run;
  unsigned touches;
  const char* output;
};
constexpr Lost kLost[] = {
    {"all updates", losing<all_updates>, kTouchesState, "state "},
    {"one update of two", losing<last_update>, kTouchesState, "state disc.mean"},
    {"all metrics", losing<all_metrics>, kTouchesPorts, "loss"},
    {"one metric of two", losing<first_metric>, kTouchesPorts, "loss"},
    {"a graph", losing<last_graph>, kTouchesGraphs | kTouchesState | kTouchesPorts, "loss"},
};

TEST(Validate, WhatAPassLosesIsNamed) {
  for (const Lost& lost : kLost) {
    std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
    passes.insert(passes.begin(), {"mine", lost.run, Level::tensor, false, lost.touches});
    const PassVerdict v = validate_passes(two_networks(), passes, context_of());
    EXPECT_EQ(v.first_bad, "mine") << lost.what;
    EXPECT_NE(v.why.find("pass mine: loses output \"" + std::string(lost.output)), std::string::npos)
        << lost.what << ": " << v.why;
  }
  EXPECT_TRUE(validate_passes(two_networks(), pipeline(), context_of()).ok());
}

TEST(Validate, TheOnlyGraphMayGo) {
  std::vector<PassEntry> passes{{"mine", losing<last_graph>, Level::tensor, false, kTouchesGraphs | kTouchesState}};
  const PassVerdict v = validate_passes(step("train", {}), passes, {});
  EXPECT_EQ(v.first_bad, "mine");
}

// A state that leaves the set with all that reads and writes it is no lost update.
StepSet without_mean(StepSet s, const PassContext&) {
  for (Graph& g : s.graphs) {
    lose_outputs(g, [](const Output& o) { return o.name == "spare"; });
    std::erase_if(g.inputs, [](const Input& in) { return in.name == "spare"; });
    g = drop_unused_inputs(dce(std::move(g), {}));
  }
  drop_unused_state(s);
  return s;
}

TEST(Validate, StateMayGoWithItsRow) {
  Builder b("g");
  const Value x = b.input({DType::f32, {2}}, InputKind::batch, "x");
  const Value spare = b.input({DType::f32, {2}}, InputKind::buffer, "spare");
  b.update(spare, x * 1.0);
  b.output(x * 2.0, OutputKind::result, "y");
  const StepSet s = set_of(b.finish());
  const auto verdict = [&](unsigned touches) {
    const std::vector<PassEntry> passes{{"mine", without_mean, Level::tensor, false, touches}};
    return validate_passes(s, passes, {});
  };
  EXPECT_TRUE(verdict(kTouchesState).ok());
}

// ---- the driver

StepSet only_the_first(StepSet s, const PassContext&) {
  Edit e(std::move(s.graphs[0]));
  e.set_output(0, e.value(e.graph().outputs[0].value) * 0.5);
  s.graphs[0] = e.finish();
  return s;
}
StepSet all_of_them(StepSet s, const PassContext&) {
  for (Graph& g : s.graphs) {
    Edit e(std::move(g));
    e.set_output(0, e.value(e.graph().outputs[0].value) * 0.5);
    g = e.finish();
  }
  return s;
}

TEST(Pipeline, TrainingGraphsAreTreatedAlike) {
  const auto run = [](PassFunction f, StepSet s, Promise promise = Promise::changes) {
    PipelineOptions options;
    options.added.push_back({"", {"mine", f, Level::tensor, false, kTouchesNothing, promise}});
    run_pipeline(std::move(s), {}, options);
  };
  EXPECT_NO_THROW(run(all_of_them, with_tail()));
  EXPECT_NO_THROW(run(only_the_first, with_tail(), Promise::preserves));  // a shape may allow what another does not
  EXPECT_NO_THROW(run(only_the_first, two_networks()));                   // of different outputs
  expect_user_error([&] { run(only_the_first, with_tail()); },
                    {"pass mine", "\"train\" changed and \"train_tail\" not"});
}

void all_metrics_by_role(StepSet& s) {
  for (Graph& g : s.graphs)
    for (Node& n : g.nodes) n.role = Role::metric;
}

TEST(Pipeline, RolesAreKept) {
  PipelineOptions options;
  options.added.push_back({"sam", {"mine", losing<all_metrics_by_role>, Level::tensor}});
  expect_user_error([&] { run_pipeline(step("train", {}), {}, options); },
                    {"pass mine: graph \"train\": expected nodes to keep their roles"});
  Builder b("g");
  const Value x = b.input({DType::f32, {2}}, InputKind::batch, "x");
  b.set_role(Role::metric);
  const Value shown = neg(x);
  b.output(exp(shown), OutputKind::metric, "m");
  const Graph fine = b.graph();
  b.set_role(Role::model);
  b.output(exp(shown), OutputKind::result, "y");
  EXPECT_NO_THROW(run_pipeline(fine, {}));
  expect_user_error([&] { run_pipeline(b.finish(), {}); },
                    {"graph \"g\": exp", "of the model reads a value of a metric"});
}

TEST(Pipeline, TechniquesNeedMarkedGradients) {
  const StepOptions unmarked{.marked = false};
  const PassContext contexts[] = {context_of(SamOptions{0.1}),       context_of(AccumulateOptions{2}),
                                  context_of(ClipValueOptions{0.1}), context_of(LookaheadOptions{2}),
                                  context_of(ClipNormOptions{1}),    context_of(AverageOptions{0.9})};
  const char* names[] = {"sam", "accumulate", "clip_value", "lookahead", "clip_norm", "average"};
  for (size_t i = 0; i < std::size(contexts); ++i) {
    expect_user_error([&] { run_pipeline(step("train", unmarked), contexts[i]); },
                      {names[i], "graph \"train\"", "gradient("});
    EXPECT_NO_THROW(run_pipeline(step("train", {}), contexts[i])) << names[i];
    // One network that is marked does not stand for the other.
    expect_user_error(
        [&] { run_pipeline(joined(step("train", {}), step("probe", {.of = "probe", .marked = false})), contexts[i]); },
        {names[i], "graph \"probe\"", "\"probe.w\""});
    StepSet evaluation = step("eval", unmarked);  // no training at all
    evaluation.graphs[0] = dce(std::move(evaluation.graphs[0]), {});
    all_updates(evaluation);
    evaluation.graphs[0] = dce(std::move(evaluation.graphs[0]), {});
    EXPECT_NO_THROW(run_pipeline(evaluation, contexts[i])) << names[i];
  }
  EXPECT_NO_THROW(run_pipeline(step("train", unmarked), context_of()));
}

TEST(Pipeline, OptionsOfProgramsAreChecked) {
  const auto refuses = [](const PassContext& context, std::initializer_list<const char*> parts) {
    expect_user_error([&] { run_pipeline(step("train", {}), context); }, parts);
  };
  refuses(context_of(ClipNormOptions{std::nan("")}), {"clip_norm", "train.clip_norm: expected", "nan"});
  refuses(context_of(ClipNormOptions{-1}), {"train.clip_norm: expected", "-1"});
  refuses(context_of(LossScaleOptions{0, 0}), {"train.loss_scale: expected"});
  refuses(context_of(LossScaleOptions{3, 0}, PrecisionOptions{"f16"}), {"train.loss_scale: expected a power of two"});
  refuses(context_of(PrecisionOptions{"f8"}), {"train.precision: expected"});
  refuses(context_of(AverageOptions{0.9, 3}), {"train.swa_from: expected one average"});
  refuses(context_of(ClipNormOptions{1}, GateOptions{.update = "at_gradient"}), {"train.update: expected"});
}

TEST(Pipeline, RequiredPassesSayWhy) {
  PipelineOptions options;
  options.disabled = {"gate"};
  expect_user_error([&] { run_pipeline(step("train", {}), {}, options); },
                    {"\"gate\" cannot be disabled", "the loop relies on"});
}

TEST(Gate, NamesOfItsMetrics) {
  for (const char* name : {"grad_norm", "accepted"})
    expect_user_error([&] { run_pipeline(step("train", {.metric = name}), {}); },
                      {"graph \"train\"", "the pass gate adds a metric", name});
  expect_user_error(
      [&] { run_pipeline(step("train", {.metric = "gradient_scale"}), context_of(PrecisionOptions{"f16"})); },
      {"the pass loss_scale adds a metric \"gradient_scale\""});
}

// What the pipeline is given: a mark must name a parameter, and a row must be of use.
TEST(Driver, RefusesMarksAndRowsOfNothing) {
  EXPECT_NO_THROW(run_pipeline(step("train", {}), context_of()));
  for (const std::string name : {"nobody", "net.mean"}) {
    StepSet set = step("train", {});
    for (Node& n : set.graphs[0].nodes)
      if (n.op == &gradient_op) n.params = make_params(GradientParams{name});
    expect_user_error([&] { run_pipeline(set, context_of()); },
                      {"\"train\"", name.c_str(), "expected the name of a parameter"});
  }
  StepSet set = step("train", {});
  const TensorType type{DType::f32, {3}};
  set.state.add({"unread", type, InputKind::param, Init::constant(1), {}});
  Graph& g = set.graphs[0];
  g.inputs.push_back({g.add_value(type), InputKind::param, "unread"});
  expect_user_error([&] { run_pipeline(set, context_of()); }, {"\"unread\"", "expected a graph that reads or writes"});
}

// Bits of a row are permissions one by one: who may add and drop graphs may not lose what is in those that stay.
TEST(Driver, HoldsGraphsThatStayToTheRow) {
  const auto refused = [](PassFunction f, unsigned touches, const char* part) {
    PipelineOptions options;
    options.added = {{"", {"mine", f, Level::tensor, false, touches, Promise::changes}}};
    expect_user_error([&] { run_pipeline(with_tail(), context_of(), options); }, {"mine", part});
  };
  const PassFunction drops_updates = [](StepSet s, const PassContext&) {
    std::erase_if(s.graphs[1].outputs, [](const Output& o) { return o.kind == OutputKind::state; });
    return s;
  };
  const PassFunction drops_metric = [](StepSet s, const PassContext&) {
    for (Graph& g : s.graphs) std::erase_if(g.outputs, [](const Output& o) { return o.name == "loss"; });
    return s;
  };
  const PassFunction forgets_tail = [](StepSet s, const PassContext& context) {
    s.graphs[0] = clip_value(set_of(s.graphs[0]), context).graphs[0];
    return s;
  };
  const PassFunction relabels = [](StepSet s, const PassContext&) {
    for (Graph& g : s.graphs)
      for (Node& n : g.nodes)
        if (n.role == Role::loss) n.role = Role::model;
    return s;
  };
  refused(drops_updates, kTouchesGraphs, "expected to keep its outputs");
  refused(drops_metric, kTouchesGraphs, "expected to keep its outputs");
  refused(forgets_tail, kTouchesGraphs, "treated alike");
  refused(relabels, kTouchesPorts, "expected nodes to keep their roles");
}

// Of several gradients, and of several graphs, each that updates a parameter is marked.
TEST(Driver, RefusesWhatATechniqueWouldPassBy) {
  EXPECT_NO_THROW(run_pipeline(two_networks(), context_of(ClipNormOptions{1}, SamOptions{0.1})));
  const StepSet half = joined(step("gen", {.of = "gen"}), step("disc", {.of = "disc", .marked = false}));
  expect_user_error([&] { run_pipeline(half, context_of(ClipNormOptions{1})); },
                    {"clip_norm", "\"disc\"", "\"disc.w\"", "does not mark the gradient"});
}

// An accumulator that is overwritten looks like one that is added to while it begins at zero.
TEST(Validate, SumsThatDoNotBeginAtZero) {
  std::vector<PassEntry> passes(pipeline().begin(), pipeline().end());
  const PassContext context = context_of(AccumulateOptions{2});
  EXPECT_EQ(validate_passes(step("train", {}), passes, context, 1).first_bad, "");
  std::ranges::find(passes, "accumulate", &PassEntry::name)->run = [](StepSet s, const PassContext& c) {
    s = accumulate(std::move(s), c);
    Graph& g = s.graphs[0];
    for (Output& o : g.outputs)
      if (o.kind == OutputKind::state && o.name.ends_with(".grad"))
        for (const Node& n : g.nodes)
          if (n.outputs[0] == o.value) o.value = n.inputs[0] == o.updates ? n.inputs[1] : n.inputs[0];
    return s;
  };
  const PassVerdict verdict = validate_passes(step("train", {}), passes, context, 1);
  EXPECT_EQ(verdict.first_bad, "accumulate") << verdict.why;
}

struct SometimesOptions {
  bool on = false;
  static void fields(auto&& f) { f("train.sometimes", &SometimesOptions::on, "for the test"); }
  static bool is_on(const SometimesOptions& o) { return o.on; }
};

TEST(Driver, DoesNotCallWhatIsOff) {
  static int calls;
  calls = 0;
  PipelineOptions options;
  options.added = {{"sam",
                    {"sometimes",
                     [](StepSet s, const PassContext&) {
                       ++calls;
                       return s;
                     },
                     Level::tensor, false, kTouchesNothing, Promise::changes, kOptions<SometimesOptions>}}};
  std::vector<PassReport> reports;
  run_pipeline(step("train", {}), context_of(), options, &reports);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(reports.size(), pipeline().size() + 1);
  run_pipeline(step("train", {}), context_of(SometimesOptions{true}), options);
  EXPECT_EQ(calls, 1);
  EXPECT_THROW(run_pipeline(step("train", {.marked = false}), context_of(SometimesOptions{true}), options), UserError);
}

TEST(Average, EachNetworkAdvancesItsOwn) {
  StepSet s = run_until("average", two_networks(), context_of(AverageOptions{0.9}));
  EXPECT_EQ(written_by(s, "gen"), (Names{"gen.w", "gen.mean", "average.gen.w", "average.gen.mean"}));
  EXPECT_EQ(written_by(s, "disc"), (Names{"disc.w", "disc.mean", "average.disc.w", "average.disc.mean"}));
  // Running statistics are written by the other half of the step.
  s = run_until("average", two_networks(), context_of(AverageOptions{0.9}, AccumulateOptions{2}));
  EXPECT_EQ(written_by(s, "update_gen"), (Names{"gen.w", "gen.w.grad", "average.gen.w", "average.gen.mean"}));
  EXPECT_EQ(written_by(s, "update_disc"), (Names{"disc.w", "disc.w.grad", "average.disc.w", "average.disc.mean"}));
  s = run_until("average", with_tail(), context_of(AverageOptions{0.9}));
  EXPECT_EQ(written_by(s, "train_tail"), (Names{"net.w", "net.mean", "average.net.w", "average.net.mean"}));
}

TEST(Average, AllGraphsThatTrainNothingReadIt) {
  StepSet set = step("train", {});
  for (const char* name : {"eval", "eval_tail"}) {
    Builder b(name);
    b.output(b.input({DType::f32, {3}}, InputKind::param, "net.w") * 1.0, OutputKind::result, "y");
    set.graphs.push_back(b.finish());
  }
  const StepSet s = run_until("average", set, context_of(AverageOptions{0.9}));
  for (const char* name : {"eval", "eval_tail"}) EXPECT_EQ(s.find_graph(name)->inputs[0].name, "average.net.w") << name;
}

}  // namespace
}  // namespace lathe
