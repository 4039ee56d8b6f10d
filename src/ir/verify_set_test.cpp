// Every rule of verify for sets, broken once.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "ir/test_ops.h"
#include "ir/verify.h"

namespace lathe::ir_test {
namespace {

// A step that moves w by x, with a slow copy of w and a count; and a reader of w.
StepSet small_set() {
  const TensorType matrix{DType::f32, {2, 3}}, count{DType::i32, {}};
  StepSet set;
  set.state.add(
      {.name = "w", .type = matrix, .init = Init::uniform(0.5), .file = {{2, 3}, {1, 0}, {3, 2}}, .gated = true});
  set.state.add({.name = "w.slow",
                 .type = matrix,
                 .kind = InputKind::optimizer,
                 .init = Init::uniform(0.5),
                 .file = {{2, 3}, {1, 0}, {3, 2}},
                 .like = "w",
                 .of = "w",
                 .saved_in = StateFile::optimizer});
  set.state.add({.name = "count",
                 .type = count,
                 .kind = InputKind::optimizer,
                 .init = {},
                 .file = {},
                 .saved_in = StateFile::optimizer});
  {
    Builder b("train");
    const Value w = b.input(matrix, InputKind::param, "w"), slow = b.input(matrix, InputKind::optimizer, "w.slow");
    const Value n = b.input(count, InputKind::optimizer, "count"), x = b.input(matrix, InputKind::batch, "x");
    b.update(w, add(w, x));
    b.update(slow, add(slow, x));
    b.update(n, add(n, n));
    set.graphs.push_back(b.finish());
  }
  {
    Builder b("eval");
    const Value w = b.input(matrix, InputKind::param, "w"), x = b.input(matrix, InputKind::batch, "x");
    b.output(add(w, x), OutputKind::result, "y");
    set.graphs.push_back(b.finish());
  }
  return set;
}

void change(StepSet& set, std::string_view name, const std::function<void(StateSpec&)>& f) {
  StateTable table;
  for (StateSpec s : set.state) {
    if (s.name == name) f(s);
    table.add(std::move(s));
  }
  set.state = std::move(table);
}

std::string error_of(const StepSet& set) {
  try {
    verify(set, Level::tensor, "", MadeBy::caller);
  } catch (const UserError& e) {
    return e.what();
  }
  return "none";
}

struct RowViolation {
  const char* state;
  std::function<void(StateSpec&)> damage;
  const char* message;
};

TEST(VerifySet, RulesOfRows) {
  ASSERT_EQ(error_of(small_set()), "none");
  const double nan = std::numeric_limits<double>::quiet_NaN(), inf = std::numeric_limits<double>::infinity();
  const RowViolation violations[] = {
      {"count", [](StateSpec& s) { s.part.axis = 0; }, "split along axis 0 of i32[]"},
      {"w", [](StateSpec& s) { s.part.first = 1; }, "a part of it without the axis"},
      {"w",
       [](StateSpec& s) {
         s.part = {0, {4, 4}, 0};
       },
       "is no part of [4, 4] along axis 0 from 0 on"},
      {"w",
       [](StateSpec& s) {
         s.part = {1, {2, 6}, 4};
       },
       "is no part of [2, 6] along axis 1 from 4 on"},
      {"w",
       [](StateSpec& s) {
         s.file.perm = {1, 1};
       },
       "perm [1, 1] is no order of the 2 axes of view [2, 3]"},
      {"w",
       [](StateSpec& s) {
         s.file.perm = {-1, 0};
       },
       "perm [-1, 0] is no order of the 2 axes"},
      {"w",
       [](StateSpec& s) {
         s.file.perm = {1, 7};
       },
       "perm [1, 7] is no order of the 2 axes"},
      {"w", [](StateSpec& s) { s.file.perm = {1}; }, "perm [1] is no order of the 2 axes"},
      {"w", [](StateSpec& s) { s.file.perm = {}; }, "view [2, 3] and shape [3, 2] without perm"},
      {"w",
       [](StateSpec& s) {
         s.file.view = {2, 2};
       },
       "view [2, 2] does not have the elements of f32[2, 3]"},
      {"w",
       [](StateSpec& s) {
         s.file.view = {-2, -3};
       },
       "view [-2, -3] does not have the elements of f32[2, 3]"},
      {"w",
       [](StateSpec& s) {
         s.file.view = {1LL << 62, 8};
       },
       "does not have the elements of f32[2, 3]"},
      {"w",
       [](StateSpec& s) {
         s.file.shape = {300, 200};
       },
       "shape [300, 200] does not have the elements of f32"},
      {"w", [](StateSpec& s) { s.file.shape = {}; }, "shape [] does not have the elements of f32[2, 3]"},
      {"w", [=](StateSpec& s) { s.init.value = nan; }, "begins at nan"},
      {"w", [=](StateSpec& s) { s.init = Init::constant(nan); }, "begins at nan"},
      {"w", [=](StateSpec& s) { s.init.value = inf; }, "a random first value within inf"},
      {"w", [](StateSpec& s) { s.init = Init::normal(-1); }, "a random first value within -1"},
      {"count", [](StateSpec& s) { s.init = Init::constant(1); }, "only f32 begins at other values than 0"},
      {"count", [](StateSpec& s) { s.init = Init::normal(0); }, "only f32 begins at other values than 0"},
      {"w.slow", [](StateSpec& s) { s.like = "nothing"; }, "like \"nothing\", which is not in the table"},
      {"w.slow", [](StateSpec& s) { s.like = "count"; }, "like \"count\", which is i32[]"},
      {"w.slow", [](StateSpec& s) { s.like = "w.slow"; }, "like \"w.slow\", which is itself a copy"},
      {"w.slow", [](StateSpec& s) { s.of = "nobody"; }, "of \"nobody\", which is not in the table"},
      {"w.slow", [](StateSpec& s) { s.of = "count"; }, "of \"count\", which is of kind optimizer"},
      {"count", [](StateSpec& s) { s.saved_as = "w.slow"; },
       "it and \"w.slow\" have the name \"w.slow\" in the file optimizer"},
  };
  for (const RowViolation& v : violations) {
    StepSet set = small_set();
    change(set, v.state, v.damage);
    const std::string error = error_of(set);
    EXPECT_NE(error.find(v.message), std::string::npos) << v.message << "\n" << error;
    EXPECT_NE(error.find(std::string("state \"") + v.state + "\""), std::string::npos) << error;
    EXPECT_THROW(verify(set, Level::tensor, "some_pass"), InternalError);
  }
  // A minimum begins at infinity; what is not saved needs no name in a file.
  StepSet set = small_set();
  change(set, "w.slow", [&](StateSpec& s) { s.init = Init::constant(inf); });
  change(set, "count", [](StateSpec& s) { s.saved_as = "w.slow", s.saved_in = StateFile::none; });
  EXPECT_EQ(error_of(set), "none");
}

// feed() knows an input by its name alone: other sizes are other batches, another type is another input.
TEST(VerifySet, AnInputIsTheSameInAllGraphs) {
  const auto with = [](const TensorType& type, InputKind kind) {
    StepSet set = small_set();
    Builder b("more");
    b.output(b.input(type, kind, "x"), OutputKind::result, "y");
    set.graphs.push_back(b.finish());
    return error_of(set);
  };
  EXPECT_EQ(with({DType::f32, {5, 3}}, InputKind::batch), "none");
  EXPECT_NE(with({DType::i32, {2, 3}}, InputKind::batch)
                .find("graph \"more\": input \"x\" is batch i32, graph \"train\" has it as batch f32"),
            std::string::npos);
  EXPECT_NE(with({DType::f32, {2, 3}}, InputKind::step).find("input \"x\" is step f32"), std::string::npos);
}

TEST(VerifySet, RowsThatGoAreForgottenByOthers) {
  StepSet set = small_set();
  std::erase_if(set.graphs, [](const Graph& g) { return g.name == "eval"; });
  Builder b("train");
  const Value slow = b.input({DType::f32, {2, 3}}, InputKind::optimizer, "w.slow");
  b.output(slow, OutputKind::result, "y");
  set.graphs[0] = b.finish();
  drop_unused_state(set);
  ASSERT_EQ(set.state.size(), 1u);
  EXPECT_EQ(set.state[0].like + set.state[0].of, "");
  EXPECT_EQ(error_of(set), "none");
}

}  // namespace
}  // namespace lathe::ir_test
