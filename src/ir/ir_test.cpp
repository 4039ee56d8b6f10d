// Graphs: equality, builder, rebuilding, inlining, composites, registry.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>

#include "ir/interpret.h"
#include "ir/print.h"
#include "ir/rewrite.h"
#include "ir/test_ops.h"
#include "ir/verify.h"

namespace lathe::ir_test {
namespace {

TEST(Registry, FindsByName) {
  EXPECT_EQ(ops().find("add"), &add_op);
  EXPECT_EQ(ops().find("twice"), &twice_op);
  EXPECT_EQ(ops().find("ad"), nullptr);
  EXPECT_EQ(ops().find("addd"), nullptr);
  EXPECT_EQ(ops().all().size(), 6u);
  EXPECT_TRUE(
      std::is_sorted(ops().all().begin(), ops().all().end(), [](auto* a, auto* b) { return a->name() < b->name(); }));
  EXPECT_THROW(OpRegistry({&add_op, &tag_op, &add_op}), InternalError);
}

TEST(StructuralEquality, IgnoresNumbersAndOriginsAndNothingElse) {
  const Graph g = small_graph();
  Graph same = g;
  same.nodes[0].origin = "elsewhere";
  EXPECT_TRUE(structurally_equal(g, same));

  // The same graph with other value numbers: an unused id in front.
  Graph shifted = g;
  shifted.types = {};
  shifted.types.push_back({DType::u8, {9}});
  for (const TensorType& t : g.types) shifted.types.push_back(t);
  for (Input& i : shifted.inputs) ++i.value;
  for (Node& n : shifted.nodes) {
    for (ValueId& v : n.inputs) ++v;
    for (ValueId& v : n.outputs) ++v;
  }
  for (Output& o : shifted.outputs) {
    ++o.value;
    if (o.updates >= 0) ++o.updates;
  }
  EXPECT_TRUE(structurally_equal(g, shifted));
  EXPECT_EQ(structural_hash(g), structural_hash(shifted));
  EXPECT_EQ(print(g), print(shifted));

  const std::function<void(Graph&)> changes[] = {
      [](Graph& h) { h.name = "other"; },
      [](Graph& h) { h.inputs[0].kind = InputKind::buffer; },
      [](Graph& h) { h.inputs[0].name = "v"; },
      [](Graph& h) { h.types.set(0, {DType::f64, {3}}); },
      [](Graph& h) { h.nodes[0].op = &tag_op; },
      [](Graph& h) { std::swap(h.nodes[0].inputs[0], h.nodes[0].inputs[1]); },
      [](Graph& h) { h.nodes.pop_back(); },
      [](Graph& h) { h.types.set(2, {DType::f32, {4}}); },
      [](Graph& h) { h.outputs[0].value = 2; },
      [](Graph& h) { h.outputs[0].kind = OutputKind::metric; },
      [](Graph& h) { h.outputs[1].updates = 1; },
      [](Graph& h) { h.outputs.pop_back(); },
  };
  for (size_t i = 0; i < std::size(changes); ++i) {
    Graph h = g;
    changes[i](h);
    EXPECT_FALSE(structurally_equal(g, h)) << "change " << i;
    EXPECT_FALSE(structurally_equal(h, g)) << "change " << i;
  }
}

TEST(StructuralEquality, LooksAtParameters) {
  const auto with = [](TagParams p) {
    Builder b("g");
    b.output(tag(b.input(kVec, InputKind::batch, "x"), std::move(p)), OutputKind::result, "y");
    return b.finish();
  };
  const Graph base = with({});
  EXPECT_TRUE(structurally_equal(base, with({})));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(structurally_equal(with({.scale = nan}), with({.scale = nan})));
  EXPECT_FALSE(structurally_equal(with({.scale = 0.0}), with({.scale = -0.0})));
  for (const TagParams& p : {TagParams{.flag = true}, TagParams{.count = 1}, TagParams{.scale = 2},
                             TagParams{.label = "l"}, TagParams{.dtype = DType::i32}, TagParams{.list = {0}},
                             TagParams{.body = std::make_shared<const Graph>(base)}}) {
    EXPECT_FALSE(structurally_equal(base, with(p)));
    EXPECT_NE(structural_hash(base), structural_hash(with(p)));
  }
}

TEST(DefinitionsAndReaders, FollowTheNodes) {
  const Graph g = small_graph();
  EXPECT_EQ(definitions(g), (std::vector<int32_t>{-1, -1, 0, 1, 1, 2}));
  const auto r = readers(g);
  EXPECT_EQ(r[0], (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(r[1], (std::vector<int32_t>{0}));
  EXPECT_EQ(r[4], (std::vector<int32_t>{}));
}

TEST(Rebuild, CopiesAndReplaces) {
  const Graph g = small_graph();
  const Graph copy = rebuild(g, [](Rebuild&, const Node&) { return std::nullopt; });
  EXPECT_TRUE(structurally_equal(g, copy));
  EXPECT_EQ(copy.nodes[0].origin, "layer1.fc");

  const Graph doubled = rebuild(g, [](Rebuild& r, const Node& n) -> std::optional<Values> {
    if (!n.is("add")) return std::nullopt;
    const Value sum = add(r.mapped(n.inputs[0]), r.mapped(n.inputs[1]));
    return Values{add(sum, sum)};
  });
  verify(doubled, Level::tensor);
  EXPECT_EQ(doubled.nodes.size(), 5u);
  EXPECT_EQ(doubled.nodes[1].origin, "layer1.fc");
  EXPECT_EQ(doubled.outputs[1].updates, doubled.inputs[0].value);

  // Replacing by something of another type, or too few values, is a bug of the pass.
  EXPECT_THROW(rebuild(g, [](Rebuild&, const Node&) -> std::optional<Values> { return Values{}; }), InternalError);
  EXPECT_THROW(rebuild(g,
                       [](Rebuild& r, const Node&) -> std::optional<Values> {
                         return Values{r.builder().input({DType::u8, {}}, InputKind::batch, "odd")};
                       }),
               InternalError);
}

TEST(InlineGraph, PutsABodyOverArguments) {
  Builder body("body");
  const Value a = body.input(kVec, InputKind::batch, "a"), c = body.input(kVec, InputKind::batch, "c");
  const Value s = add(a, c);
  body.output(add(s, a), OutputKind::result, "y");
  body.output(c, OutputKind::result, "same");  // an input passed through
  const Graph inner = body.finish();

  Builder b("outer");
  const Value x = b.input(kVec, InputKind::batch, "x");
  const Value args[] = {add(x, x), x};
  const Values out = inline_graph(b, inner, args);
  ASSERT_EQ(out.size(), 2u);
  EXPECT_EQ(out[1].id(), x.id());
  b.output(out[0], OutputKind::result, "y");
  const Graph g = b.finish();
  verify(g, Level::lowered);
  EXPECT_EQ(interpret(g, {{kVec, {1, 2, 3}}}, Precision::exact)[0].data, (std::vector<double>{5, 10, 15}));

  Builder other("other");
  EXPECT_THROW(inline_graph(other, inner, {}), InternalError);
}

TEST(Composite, FacetsFollowFromTheExpansion) {
  EXPECT_TRUE(twice_op.is_composite());
  EXPECT_TRUE(twice_op.is_differentiable());
  EXPECT_FALSE(add_op.is_differentiable());
  Builder b("g");
  const Value x = b.input(kVec, InputKind::batch, "x");
  b.output(b.add1(twice_op, std::span(&x, 1), NoParams{}), OutputKind::result, "y");
  const Graph g = b.finish();
  verify(g, Level::lowered);
  EXPECT_EQ(interpret(g, {{kVec, {1, 2, 3}}}, Precision::exact)[0].data, (std::vector<double>{2, 4, 6}));
  const Cost c = g.cost(g.nodes[0]);
  EXPECT_EQ(c.bytes_read, 12);
  EXPECT_EQ(c.bytes_written, 12);
  const Graph expanded = rebuild(g, [](Rebuild& r, const Node& n) -> std::optional<Values> {
    return expand_node(r.builder(), n, r.mapped(n.inputs));
  });
  EXPECT_TRUE(expanded.nodes[0].is("add"));
}

// Expansions that give nothing, or the op itself; all facets follow from them, or all but the type rule.
template <class Own>
struct Wrong {
  using Params = NoParams;
  static constexpr OpInfo info{.name = "wrong", .doc = "", .inputs = 1};
  static Values expand(Builder& b, ArgValues x, const Params&) { return Own::values(b, x); }
  static std::vector<Sample> samples() { return no_samples(); }
};
template <class Own>
struct WrongButTyped : Wrong<Own> {
  static Types infer(ArgTypes x, const NoParams&) { return {x[0]}; }
};
struct Nothing {
  static Values values(Builder&, ArgValues) { return {}; }
};
struct Itself {
  static Values values(Builder& b, ArgValues x);
};
struct ItselfButTyped {
  static Values values(Builder& b, ArgValues x);
};
constexpr OpDef nothing_op = make_op<Wrong<Nothing>>(), itself_op = make_op<Wrong<Itself>>(),
                endless_op = make_op<WrongButTyped<ItselfButTyped>>();
Values Itself::values(Builder& b, ArgValues x) { return {b.add1(itself_op, x, NoParams{})}; }
Values ItselfButTyped::values(Builder& b, ArgValues x) { return {b.add1(endless_op, x, NoParams{})}; }

TEST(Composite, ExpansionsWithoutResultOrEndAreRefused) {
  Builder b("g");
  const Value x = b.input(kVec, InputKind::batch, "x");
  EXPECT_THROW(b.add1(nothing_op, std::span(&x, 1), NoParams{}), UserError);
  EXPECT_THROW(b.add1(itself_op, std::span(&x, 1), NoParams{}), UserError);
  b.output(b.add1(endless_op, std::span(&x, 1), NoParams{}), OutputKind::result, "endless");
  const Graph g = b.finish();
  EXPECT_THROW(g.cost(g.nodes[0]), UserError);
  EXPECT_THROW(interpret(g, {{kVec, {1, 2, 3}}}, Precision::exact), UserError);
  EXPECT_NO_THROW(check_expansion_ends(g, 20, endless_op));
  EXPECT_THROW(check_expansion_ends(g, 64, endless_op), UserError);
}

TEST(Builder, RefusesForeignValuesAndWrongArity) {
  Builder a("a"), b("b");
  const Value x = a.input(kVec, InputKind::batch, "x"), y = b.input(kVec, InputKind::batch, "y");
  EXPECT_THROW(add(x, y), UserError);
  EXPECT_THROW(add(x, Value()), UserError);
  EXPECT_THROW(a.add(add_op, std::span(&x, 1), make_params(NoParams{})), UserError);
  EXPECT_THROW(a.output(y, OutputKind::result, "y"), UserError);
  EXPECT_THROW(Value().builder(), UserError);
  EXPECT_THROW(a.value(77).type(), UserError);
  EXPECT_THROW(add(x, a.value(77)), UserError);
  EXPECT_THROW(add(x, a.value(-1)), UserError);
}

TEST(Builder, RefusesParametersOfAnotherOp) {
  Builder b("g");
  const Value x = b.input(kVec, InputKind::batch, "x");
  EXPECT_THROW(b.add(tag_op, std::span(&x, 1), nullptr), UserError);
  EXPECT_THROW(b.add1(tag_op, std::span(&x, 1), NoParams{}), UserError);
  EXPECT_NO_THROW(b.add1(tag_op, std::span(&x, 1), TagParams{}));
  Graph g = b.finish();
  g.nodes[0].params = make_params(NoParams{});
  EXPECT_THROW(verify(g, Level::tensor), InternalError);
}

TEST(Builder, UpdatesStateOnceWithItsOwnType) {
  Builder b("g");
  const Value x = b.input(kVec, InputKind::batch, "x"), w = b.input(kVec, InputKind::param, "w"),
              scalar = b.input({DType::f32, {}}, InputKind::batch, "scalar");
  EXPECT_THROW(b.update(x, x), UserError);          // not state
  EXPECT_THROW(b.update(add(w, w), w), UserError);  // not an input
  EXPECT_THROW(b.update(w, scalar), UserError);
  b.update(w, x);
  EXPECT_THROW(b.update(w, x), UserError);
}

TEST(Builder, FinishesGraphsWithNamesOfTheirOwn) {
  Builder b("g");
  const Value x = b.input(kVec, InputKind::batch, "x");
  b.output(x, OutputKind::result, "y");
  b.output(x, OutputKind::metric, "y");  // of another kind
  b.output(x, OutputKind::result, "z");
  EXPECT_NO_THROW(b.finish());
  EXPECT_THROW(add(x, x), UserError);  // its graph is gone
  EXPECT_THROW(x.type(), UserError);

  Builder inputs("g");
  inputs.input(kVec, InputKind::batch, "x");
  inputs.input(kVec, InputKind::param, "x");
  EXPECT_THROW(inputs.finish(), UserError);
  Builder outputs("g");
  const Value y = outputs.input(kVec, InputKind::batch, "x");
  outputs.output(y, OutputKind::result, "y");
  outputs.output(y, OutputKind::result, "y");
  EXPECT_THROW(outputs.finish(), UserError);
}

TEST(Interpret, RoundsOnlyOnRequestAndChecksItsInputs) {
  Builder b("g");
  const Value x = b.input(kVec, InputKind::batch, "x");
  b.output(add(x, x), OutputKind::result, "y");
  const Graph g = b.finish();
  const double third = 1.0 / 3;
  EXPECT_EQ(interpret(g, {{kVec, {third, 0, 0}}}, Precision::exact)[0].data[0], 2 * third);
  EXPECT_EQ(interpret(g, {{kVec, {third, 0, 0}}}, Precision::rounded)[0].data[0],
            static_cast<double>(static_cast<float>(2 * third)));
  EXPECT_THROW(interpret(g, {}, Precision::exact), UserError);
  EXPECT_THROW(interpret(g, {{kVec, {1, 2}}}, Precision::exact), UserError);
}

}  // namespace
}  // namespace lathe::ir_test
