// Every rule of verify, broken once.
#include "ir/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "ir/test_effects.h"
#include "ir/test_ops.h"

namespace lathe::ir_test {
namespace {

struct Violation {
  const char* rule;
  Level level;
  std::function<void(Graph&)> damage;
  const char* message;
};

TEST(Verify, NamesThePassTheRuleAndTheNode) {
  const Violation violations[] = {
      {"defined before read", Level::tensor, [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); },
       "is read before it is defined"},
      {"defined at all", Level::tensor, [](Graph& g) { g.nodes[0].inputs[0] = 99; },
       "%99 is read before it is defined"},
      {"not negative", Level::tensor, [](Graph& g) { g.nodes[0].inputs[0] = -1; }, "%-1 is read before it is defined"},
      {"types agree", Level::tensor,
       [](Graph& g) {
         g.types.set(2, {DType::f32, {4}});
       },
       "output types differ from the type rule, which gives (f32[3])"},
      {"number of outputs", Level::tensor, [](Graph& g) { g.nodes[1].outputs = {}; },
       "output types differ from the type rule"},
      {"type rule", Level::tensor,
       [](Graph& g) {
         g.types.set(1, {DType::i32, {3}});
       },
       "the type rule refuses it: add: i32[3] and f32[3] differ"},
      {"arity", Level::tensor, [](Graph& g) { g.nodes[0].inputs = {g.nodes[0].inputs[0]}; },
       "add takes 2 inputs, has 1"},
      {"no inputs at all", Level::tensor,
       [](Graph& g) {
         g.nodes[1].op = &many_op;
         g.nodes[1].inputs.clear();
       },
       "many takes -1 inputs, has 0"},
      {"has an op", Level::tensor, [](Graph& g) { g.nodes[2].op = nullptr; }, "node without an op"},
      {"has parameters", Level::tensor, [](Graph& g) { g.nodes[2].params = nullptr; }, "node without parameters"},
      {"defined once", Level::tensor, [](Graph& g) { g.nodes[2].outputs[0] = g.nodes[0].outputs[0]; },
       "is defined twice"},
      {"input defined once", Level::tensor, [](Graph& g) { g.inputs[1].value = g.inputs[0].value; },
       "value %0 is defined twice"},
      {"input has a type", Level::tensor, [](Graph& g) { g.inputs[1].value = 77; }, "value %77 has no type"},
      {"names of inputs", Level::tensor, [](Graph& g) { g.inputs[1].name = "w"; }, "two inputs are named \"w\""},
      {"names of outputs", Level::tensor, [](Graph& g) { g.outputs.push_back(g.outputs[0]); },
       "two outputs are named \"y\""},
      {"output defined", Level::tensor, [](Graph& g) { g.outputs[0].value = 88; }, "output \"y\" is not defined"},
      {"only state updates", Level::tensor, [](Graph& g) { g.outputs[0].updates = 0; },
       "state outputs, and only they, name an input"},
      {"state updates", Level::tensor, [](Graph& g) { g.outputs[1].updates = -1; },
       "state outputs, and only they, name an input"},
      {"updates state", Level::tensor, [](Graph& g) { g.outputs[1].updates = 1; },
       "updates %1, which is not a state input"},
      {"type of update", Level::tensor,
       [](Graph& g) {
         g.types.push_back({DType::f32, {4}});
         g.inputs.push_back({static_cast<ValueId>(g.types.size() - 1), InputKind::batch, "z"});
         g.outputs[1].value = g.inputs.back().value;
       },
       "f32[4] updates f32[3]"},
      {"name of update", Level::tensor, [](Graph& g) { g.outputs[1].name = "other"; },
       "output \"other\" updates the input \"w\""},
      {"updated once", Level::tensor,
       [](Graph& g) {
         g.outputs.push_back(g.outputs[1]);
         g.outputs.back().name = "other";
       },
       "input \"w\" is updated twice"},
      {"no grad below", Level::lowered,
       [](Graph& g) {
         g.nodes[0].op = &grad_op;
         g.nodes[0].params = make_params(NoParams{});
       },
       "`grad` must be expanded by autodiff"},
      {"donation", Level::lowered,
       [](Graph& g) {
         Node late = g.nodes[0];  // reads w after the node that writes its storage
         late.outputs = {g.add_value(kVec)};
         g.nodes.push_back(late);
       },
       "%0 is read after its update %5 was written"},
  };
  for (const Violation& v : violations) {
    SCOPED_TRACE(v.rule);
    Graph g = small_graph();
    EXPECT_NO_THROW(verify(g, Level::lowered));
    v.damage(g);
    try {
      verify(g, v.level, "some_pass");
      ADD_FAILURE() << "not noticed";
    } catch (const InternalError& e) {
      const std::string text = e.what();
      EXPECT_NE(text.find(v.message), std::string::npos) << text;
      EXPECT_NE(text.find("graph \"small\" is not valid after pass some_pass"), std::string::npos) << text;
    }
  }
}

TEST(Verify, ShowsTheCulpritAmongItsNeighbours) {
  Builder b("long");
  Value v = b.input(kVec, InputKind::batch, "x");
  for (int i = 0; i < 50; ++i) v = add(v, v);
  Graph g = b.finish();
  g.nodes[25].inputs[0] = 40;
  try {
    verify(g, Level::tensor);
    FAIL();
  } catch (const InternalError& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("> %26: f32[3] = add(%40, %25)"), std::string::npos) << text;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 21);
  }
}

TEST(Verify, OrderedNodesStayInOrder) {
  Builder b("g");
  const Value x = b.input(kVec, InputKind::batch, "x");
  b.output(add(send(x, 1), send(x, 2)), OutputKind::result, "y");
  const Graph g = b.finish();
  EXPECT_NO_THROW(verify_order(g, g));
  Graph more = g, fewer = g, moved = g;
  more.nodes.insert(more.nodes.begin() + 1, g.nodes[0]);
  EXPECT_NO_THROW(verify_order(g, more));
  fewer.nodes.erase(fewer.nodes.begin());
  EXPECT_THROW(verify_order(g, fewer), InternalError);
  EXPECT_THROW(verify_order(g, fewer, "some_pass", MadeBy::caller), UserError);
  std::swap(moved.nodes[0], moved.nodes[1]);
  EXPECT_THROW(verify_order(g, moved), InternalError);
}

TEST(Verify, LevelsDiffer) {
  Builder b("g");
  const Value x = b.input({DType::f32, {}}, InputKind::param, "x");
  const Value in[] = {x, x};
  b.output(b.add(grad_op, in, make_params(NoParams{}))[0], OutputKind::result, "dx");
  const Graph g = b.finish();
  EXPECT_NO_THROW(verify(g, Level::tensor));
  EXPECT_THROW(verify(g, Level::lowered), InternalError);
}

}  // namespace
}  // namespace lathe::ir_test
