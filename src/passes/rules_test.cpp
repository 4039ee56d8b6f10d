// Every row of the rule tables fires in one example, gives the graph written here, and keeps the numbers.
#include "passes/rules.h"

#include <algorithm>
#include <set>

#include "passes/canonicalize.h"
#include "passes/fold.h"
#include "passes/layout.h"
#include "passes/test_util.h"

namespace lathe {
namespace {

struct Example {
  const char* rule;
  const char* inputs;  // shared by both graphs
  const char* before;  // the last value is the result
  const char* after;
};

// The result is what the last line defines; a body that is only `%2` means the third input.
Graph graph_of(const Example& e, const std::string& body) {
  const bool is_input = body.find('=') == std::string::npos;
  Graph g = parse_graph(std::string("graph g {\n") + e.inputs + (is_input ? "" : body) + "\n}", registry());
  const ValueId y = is_input ? g.inputs[static_cast<size_t>(body[1] - '0')].value : g.nodes.back().outputs[0];
  g.outputs.push_back({y, OutputKind::result, "y"});
  return g;
}

const char* kA = "input %0: f32[2, 3] batch \"a\"\n";
const char* kAB = "input %0: f32[2, 3] batch \"a\"\n input %1: f32[2, 3] batch \"b\"\n";
const char* kFlags =
    "input %0: bool[2, 3] batch \"a\"\n input %1: f32[2, 3] batch \"b\"\n input %2: f32[2, 3] batch \"c\"\n";

const Example kExamples[] = {
    // Numbers.
    {"add_constant_right", kA,
     "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=2.0}\n %2: f32[2, 3] = add(%1, %0)",
     "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=2.0}\n %2: f32[2, 3] = add(%0, %1)"},
    {"mul_constant_right", kA,
     "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=2.0}\n %2: f32[2, 3] = mul(%1, %0)",
     "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=2.0}\n %2: f32[2, 3] = mul(%0, %1)"},
    {"eq_constant_right", kA,
     "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=2.0}\n %2: bool[2, 3] = eq(%1, %0)",
     "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=2.0}\n %2: bool[2, 3] = eq(%0, %1)"},
    {"and_constant_right", kFlags,
     "%3: bool[2, 3] = full() {dtype=bool, shape=[2, 3], value=0.0}\n %4: bool[2, 3] = logical_and(%3, %0)",
     "%3: bool[2, 3] = full() {dtype=bool, shape=[2, 3], value=0.0}\n %4: bool[2, 3] = logical_and(%0, %3)"},
    {"or_constant_right", kFlags,
     "%3: bool[2, 3] = full() {dtype=bool, shape=[2, 3], value=1.0}\n %4: bool[2, 3] = logical_or(%3, %0)",
     "%3: bool[2, 3] = full() {dtype=bool, shape=[2, 3], value=1.0}\n %4: bool[2, 3] = logical_or(%0, %3)"},
    {"add_zero", kA, "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=0.0}\n %2: f32[2, 3] = add(%0, %1)", "%0"},
    {"sub_zero", kA, "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=0.0}\n %2: f32[2, 3] = sub(%0, %1)", "%0"},
    {"mul_one", kA, "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=1.0}\n %2: f32[2, 3] = mul(%0, %1)", "%0"},
    {"div_one", kA, "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=1.0}\n %2: f32[2, 3] = div(%0, %1)", "%0"},
    {"and_true", kFlags,
     "%3: bool[2, 3] = full() {dtype=bool, shape=[2, 3], value=1.0}\n %4: bool[2, 3] = logical_and(%0, %3)", "%0"},
    {"or_false", kFlags,
     "%3: bool[2, 3] = full() {dtype=bool, shape=[2, 3], value=0.0}\n %4: bool[2, 3] = logical_or(%0, %3)", "%0"},
    {"add_neg", kAB, "%2: f32[2, 3] = neg(%1)\n %3: f32[2, 3] = add(%0, %2)", "%2: f32[2, 3] = sub(%0, %1)"},
    {"neg_add", kAB, "%2: f32[2, 3] = neg(%1)\n %3: f32[2, 3] = add(%2, %0)", "%2: f32[2, 3] = sub(%0, %1)"},
    {"sub_neg", kAB, "%2: f32[2, 3] = neg(%1)\n %3: f32[2, 3] = sub(%0, %2)", "%2: f32[2, 3] = add(%0, %1)"},
    {"neg_neg", kA, "%1: f32[2, 3] = neg(%0)\n %2: f32[2, 3] = neg(%1)", "%0"},
    {"not_not", kFlags, "%3: bool[2, 3] = logical_not(%0)\n %4: bool[2, 3] = logical_not(%3)", "%0"},
    {"select_constant", kFlags,
     "%3: bool[2, 3] = full() {dtype=bool, shape=[2, 3], value=0.0}\n %4: f32[2, 3] = select(%3, %1, %2)", "%2"},
    {"select_same", kFlags, "%3: f32[2, 3] = select(%0, %1, %1)", "%1"},
    {"cast_same", kA, "%1: f32[2, 3] = cast(%0) {dtype=f32}", "%0"},
    {"cast_cast", "input %0: u8[2, 3] batch \"a\"\n",
     "%1: i32[2, 3] = cast(%0) {dtype=i32}\n %2: f32[2, 3] = cast(%1) {dtype=f32}",
     "%1: f32[2, 3] = cast(%0) {dtype=f32}"},
    // Shapes.
    {"reshape_same", kA, "%1: f32[2, 3] = reshape(%0) {shape=[2, 3]}", "%0"},
    {"reshape_reshape", kA, "%1: f32[6] = reshape(%0) {shape=[6]}\n %2: f32[3, 2] = reshape(%1) {shape=[3, 2]}",
     "%1: f32[3, 2] = reshape(%0) {shape=[3, 2]}"},
    {"reshape_broadcast", "input %0: f32[] step \"a\"\n",
     "%1: f32[6] = broadcast(%0) {shape=[6]}\n %2: f32[3, 2] = reshape(%1) {shape=[3, 2]}",
     "%1: f32[3, 2] = broadcast(%0) {shape=[3, 2]}"},
    {"broadcast_same", kA, "%1: f32[2, 3] = broadcast(%0) {shape=[2, 3]}", "%0"},
    {"broadcast_broadcast", "input %0: f32[3] batch \"a\"\n",
     "%1: f32[2, 3] = broadcast(%0) {shape=[2, 3]}\n %2: f32[4, 2, 3] = broadcast(%1) {shape=[4, 2, 3]}",
     "%1: f32[4, 2, 3] = broadcast(%0) {shape=[4, 2, 3]}"},
    {"broadcast_leading_ones", "input %0: f32[3] batch \"a\"\n",
     "%1: f32[1, 3] = reshape(%0) {shape=[1, 3]}\n %2: f32[4, 3] = broadcast(%1) {shape=[4, 3]}",
     "%1: f32[4, 3] = broadcast(%0) {shape=[4, 3]}"},
    {"broadcast_ones", "input %0: f32[3] batch \"a\"\n", "%1: f32[1, 3] = broadcast(%0) {shape=[1, 3]}",
     "%1: f32[1, 3] = reshape(%0) {shape=[1, 3]}"},
    {"reduce_sum_ones", "input %0: f32[3, 1] batch \"a\"\n", "%1: f32[3] = reduce_sum(%0) {axes=[1], keep_dims=false}",
     "%1: f32[3] = reshape(%0) {shape=[3]}"},
    {"reduce_max_ones", kA, "%1: f32[2, 3] = reduce_max(%0) {axes=[], keep_dims=false}", "%0"},
    {"reduce_sum_reshape", "input %0: f32[2, 4, 3] batch \"a\"\n",
     "%1: f32[2, 4, 3] = tanh(%0)\n %2: f32[8, 3] = reshape(%1) {shape=[8, 3]}\n"
     " %3: f32[3] = reduce_sum(%2) {axes=[0], keep_dims=false}",
     "%1: f32[2, 4, 3] = tanh(%0)\n %2: f32[3] = reduce_sum(%1) {axes=[0, 1], keep_dims=false}"},
    {"reduce_max_reshape", "input %0: f32[6, 3] batch \"a\"\n",
     "%1: f32[6, 3] = tanh(%0)\n %2: f32[2, 3, 3] = reshape(%1) {shape=[2, 3, 3]}\n"
     " %3: f32[2, 3] = reduce_max(%2) {axes=[2], keep_dims=false}",
     "%1: f32[6, 3] = tanh(%0)\n %2: f32[6] = reduce_max(%1) {axes=[1], keep_dims=false}\n"
     " %3: f32[2, 3] = reshape(%2) {shape=[2, 3]}"},
    {"pad_nothing", kA, "%1: f32[2, 3] = pad(%0) {low=[0, 0], high=[0, 0], interior=[0, 0], value=0.0}", "%0"},
    {"add_pads", kAB,
     "%2: f32[5, 3] = pad(%0) {low=[3, 0], high=[0, 0], interior=[0, 0], value=0.0}\n"
     " %3: f32[5, 3] = pad(%1) {low=[1, 0], high=[2, 0], interior=[0, 0], value=0.0}\n %4: f32[5, 3] = add(%2, %3)",
     "%2: f32[4, 3] = concat(%1, %0) {axis=0}\n"
     " %3: f32[5, 3] = pad(%2) {low=[1, 0], high=[0, 0], interior=[0, 0], value=0.0}"},
    {"concat_concat", kAB, "%2: f32[4, 3] = concat(%0, %1) {axis=0}\n %3: f32[6, 3] = concat(%2, %0) {axis=0}",
     "%2: f32[6, 3] = concat(%0, %1, %0) {axis=0}"},
    {"sink_reshape",
     "input %0: f32[6, 4] batch \"a\"\n input %1: f32[4, 5] param \"w\"\n input %2: f32[5] param \"b\"\n",
     "%3: f32[6, 5] = matmul(%0, %1) {trans_a=false, trans_b=false}\n %4: f32[2, 3, 5] = reshape(%3) {shape=[2, 3, "
     "5]}\n"
     " %5: f32[2, 3, 5] = broadcast(%2) {shape=[2, 3, 5]}\n %6: f32[2, 3, 5] = add(%4, %5)\n %7: f32[2, 3, 5] = "
     "relu(%6)",
     "%3: f32[6, 5] = matmul(%0, %1) {trans_a=false, trans_b=false}\n %4: f32[6, 5] = broadcast(%2) {shape=[6, 5]}\n"
     " %5: f32[6, 5] = add(%3, %4)\n %6: f32[6, 5] = relu(%5)\n %7: f32[2, 3, 5] = reshape(%6) {shape=[2, 3, 5]}"},
    // Constants.
    {"fold_broadcast", kA,
     "%1: f32[] = full() {dtype=f32, shape=[], value=0.1}\n %2: f32[4] = broadcast(%1) {shape=[4]}",
     "%1: f32[4] = full() {dtype=f32, shape=[4], value=0.1}"},
    {"fold_reshape", kA,
     "%1: f32[4] = full() {dtype=f32, shape=[4], value=0.1}\n %2: f32[2, 2] = reshape(%1) {shape=[2, 2]}",
     "%1: f32[2, 2] = full() {dtype=f32, shape=[2, 2], value=0.1}"},
    {"fold_transpose", kA,
     "%1: f32[4, 1] = full() {dtype=f32, shape=[4, 1], value=0.1}\n %2: f32[1, 4] = transpose(%1) {perm=[1, 0]}",
     "%1: f32[1, 4] = full() {dtype=f32, shape=[1, 4], value=0.1}"},
    {"fold_slice", kA,
     "%1: f32[4] = full() {dtype=f32, shape=[4], value=0.1}\n %2: f32[2] = slice(%1) {starts=[1], sizes=[2], "
     "steps=[1]}",
     "%1: f32[2] = full() {dtype=f32, shape=[2], value=0.1}"},
    {"fold_max", kA,
     "%1: f32[4] = full() {dtype=f32, shape=[4], value=0.1}\n %2: f32[] = reduce_max(%1) {axes=[0], keep_dims=false}",
     "%1: f32[] = full() {dtype=f32, shape=[], value=0.1}"},
    {"fold_sum", kA,
     "%1: f32[4, 2] = full() {dtype=f32, shape=[4, 2], value=0.5}\n %2: f32[2] = reduce_sum(%1) {axes=[0], "
     "keep_dims=false}",
     "%1: f32[2] = full() {dtype=f32, shape=[2], value=2.0}"},
    {"fold_elementwise", kA,
     "%1: f32[] = full() {dtype=f32, shape=[], value=3.0}\n %2: f32[] = full() {dtype=f32, shape=[], value=0.5}\n"
     " %3: f32[] = mul(%1, %2)\n %4: bool[] = lt(%3, %1)\n %5: i32[] = cast(%4) {dtype=i32}",
     "%1: i32[] = full() {dtype=i32, shape=[], value=1.0}"},
    // Transposes.
    {"transpose_same", kA, "%1: f32[2, 3] = transpose(%0) {perm=[0, 1]}", "%0"},
    {"transpose_transpose", "input %0: f32[2, 3, 4] batch \"a\"\n",
     "%1: f32[4, 2, 3] = transpose(%0) {perm=[2, 0, 1]}\n %2: f32[2, 4, 3] = transpose(%1) {perm=[1, 0, 2]}",
     "%1: f32[2, 4, 3] = transpose(%0) {perm=[0, 2, 1]}"},
    {"transpose_to_reshape", "input %0: f32[1, 3, 4] batch \"a\"\n",
     "%1: f32[3, 4, 1] = transpose(%0) {perm=[1, 2, 0]}", "%1: f32[3, 4, 1] = reshape(%0) {shape=[3, 4, 1]}"},
    {"transpose_matmul", "input %0: f32[2, 3] batch \"a\"\n input %1: f32[3, 4] param \"w\"\n",
     "%2: f32[2, 4] = matmul(%0, %1) {trans_a=false, trans_b=false}\n %3: f32[4, 2] = transpose(%2) {perm=[1, 0]}",
     "%2: f32[4, 2] = matmul(%1, %0) {trans_a=true, trans_b=true}"},
    {"matmul_transpose", "input %0: f32[3, 2] batch \"a\"\n input %1: f32[4, 3] param \"w\"\n",
     "%2: f32[2, 3] = transpose(%0) {perm=[1, 0]}\n %3: f32[3, 4] = transpose(%1) {perm=[1, 0]}\n"
     " %4: f32[2, 4] = matmul(%2, %3) {trans_a=false, trans_b=false}",
     "%2: f32[2, 4] = matmul(%0, %1) {trans_a=true, trans_b=true}"},
    {"reduce_sum_transpose", "input %0: f32[2, 3, 4] batch \"a\"\n",
     "%1: f32[3, 2, 4] = transpose(%0) {perm=[1, 0, 2]}\n %2: f32[2, 4] = reduce_sum(%1) {axes=[0], keep_dims=false}",
     "%1: f32[2, 4] = reduce_sum(%0) {axes=[1], keep_dims=false}"},
    {"reduce_max_transpose", kA,
     "%1: f32[3, 2] = transpose(%0) {perm=[1, 0]}\n %2: f32[3, 1] = reduce_max(%1) {axes=[1], keep_dims=true}",
     "%1: f32[1, 3] = reduce_max(%0) {axes=[0], keep_dims=true}\n %2: f32[3, 1] = reshape(%1) {shape=[3, 1]}"},
    {"sink_transpose", kA,
     "%1: f32[3, 2] = transpose(%0) {perm=[1, 0]}\n %2: f32[3, 2] = full() {dtype=f32, shape=[3, 2], value=2.0}\n"
     " %3: f32[3, 2] = mul(%1, %2)\n %4: f32[3, 2] = tanh(%3)\n %5: f32[2, 3] = transpose(%4) {perm=[1, 0]}",
     "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=2.0}\n %2: f32[2, 3] = mul(%0, %1)\n %3: f32[2, 3] = "
     "tanh(%2)"},
};

std::vector<Rule> all_rules() {
  std::vector<Rule> out;
  for (auto rules : {arithmetic_rules(), shape_rules(), fold_rules(), layout_rules()})
    out.insert(out.end(), rules.begin(), rules.end());
  return out;
}

TEST(Rules, EveryRowFiresInItsExample) {
  std::set<std::string_view> shown;
  for (const Example& e : kExamples) {
    SCOPED_TRACE(e.rule);
    shown.insert(e.rule);
    const Graph before = graph_of(e, e.before), after = graph_of(e, e.after);
    // The table that holds the row, alone: the example must need nothing else.
    std::vector<Fired> fired;
    Graph now;
    for (auto rules : {arithmetic_rules(), shape_rules(), fold_rules(), layout_rules()})
      if (std::ranges::find(rules, e.rule, &Rule::name) != rules.end()) now = apply_rules(before, rules, &fired);
    EXPECT_NE(std::ranges::find(fired, e.rule, &Fired::rule), fired.end()) << "did not fire";
    verify(now, Level::tensor, e.rule);
    EXPECT_TRUE(structurally_equal(now, after)) << "got\n" << print(now) << "\nexpected\n" << print(after);
    expect_same_meaning(before, now);
  }
  for (const Rule& r : all_rules()) EXPECT_TRUE(shown.contains(r.name)) << r.name << " has no example";
}

// What must stay as it is.
TEST(Rules, KeepWhatNaNAndRoundingNeed) {
  for (const char* body : {
           "%1: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=0.0}\n %2: f32[2, 3] = mul(%0, %1)",  // NaN * 0
           "%1: f32[2, 3] = sub(%0, %0)",                                                                // inf - inf
           "%1: f32[2, 3] = div(%0, %0)",                                                                //
           "%1: i32[2, 3] = cast(%0) {dtype=i32}\n %2: f32[2, 3] = cast(%1) {dtype=f32}",                // truncation
           "%1: f32[3, 2] = transpose(%0) {perm=[1, 0]}\n %2: f32[] = reduce_sum(%1) {axes=[0, 1], keep_dims=false}",
           "%1: f32[1] = full() {dtype=f32, shape=[1], value=1e+30}\n %2: f32[1] = mul(%1, %1)",  // overflow
       }) {
    const Example e{"", kA, body, body};
    const Graph g = graph_of(e, body);
    EXPECT_TRUE(structurally_equal(apply_rules(g, all_rules()), g)) << print(apply_rules(g, all_rules()));
  }
}

TEST(Rules, AGraphWithoutMatchKeepsItsDeadNodes) {
  const Graph g = parse_graph(
      "graph g {\n input %0: f32[2] batch \"x\"\n %1: f32[2] = tanh(%0)\n %2: f32[2] = exp(%0)\n"
      " output %1 result \"y\"\n}",
      registry());
  EXPECT_TRUE(structurally_equal(canonicalize(g, {}), g));
}

TEST(Rules, TwoRowsThatUndoEachOtherAreCaught) {
  const Rule rules[] = {
      {"there", "add", [](const Match& m) { return m.b.add(*registry().find("sub"), m.x, m.n.params)[0]; }},
      {"back", "sub", [](const Match& m) { return m.b.add(*registry().find("add"), m.x, m.n.params)[0]; }},
  };
  const Graph g = parse_graph(
      std::string("graph g {\n") + kAB + " %2: f32[2, 3] = add(%0, %1)\n output %2 result \"y\"\n}", registry());
  EXPECT_THROW(apply_rules(g, rules), InternalError);
}

TEST(Fold, SumsExactlyAndOnce) {
  // 0.1 * 3 in f64, rounded where it is stored: not f32(0.1) * 3 rounded again.
  expect_pass(
      fold,
      "graph g {\n %0: f32[] = full() {dtype=f32, shape=[], value=0.1}\n %1: f32[] = full() {dtype=f32, shape=[], "
      "value=3.0}\n"
      " %2: f32[] = mul(%0, %1)\n output %2 result \"y\"\n}",
      "graph g {\n %0: f32[] = full() {dtype=f32, shape=[], value=0.30000000000000004}\n output %0 result \"y\"\n}");
}

}  // namespace
}  // namespace lathe
