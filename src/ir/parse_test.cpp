// Text form: print and parse are inverse; errors name their place.
#include <gtest/gtest.h>

#include <ctime>
#include <limits>

#include "ir/print.h"
#include "ir/rewrite.h"
#include "ir/test_ops.h"
#include "ir/verify.h"

namespace lathe::ir_test {
namespace {

TEST(Print, ShowsEveryPartOfAGraph) {
  EXPECT_EQ(print(small_graph()),
            "graph small {\n"
            "  input %0: f32[3] param \"w\"\n"
            "  input %1: f32[3] batch \"x\"\n"
            "  %2: f32[3] = add(%1, %0) @\"layer1.fc\"\n"
            "  %3: f32[3], %4: f32[3] = split(%2)\n"
            "  %5: f32[3] = add(%0, %3)\n"
            "  output %4 result \"y\"\n"
            "  output %5 state \"w\" updates %0\n"
            "}");
}

void expect_round_trip(const Graph& g) {
  const std::string text = print(g);
  const Graph back = parse_graph(text, ops());
  EXPECT_TRUE(structurally_equal(g, back)) << text;
  EXPECT_EQ(structural_hash(g), structural_hash(back));
  EXPECT_EQ(print(back), text);
}

TEST(Parse, IsTheInverseOfPrint) {
  expect_round_trip(small_graph());
  expect_round_trip(Graph{});
  for (const char* name : {"train.tail", "name with space", "a-b", "{\"}"}) {
    Graph g = small_graph();
    g.name = name;
    expect_round_trip(g);
  }
  Builder b("kinds");
  for (DType t : kAllDTypes) b.input({t, {2, 0, 4}}, InputKind::buffer, fmt::format("in put \"{}\"\n\\", to_string(t)));
  b.input({DType::f64, {}}, InputKind::step, "");
  expect_round_trip(b.finish());
}

TEST(Parse, KeepsParametersOfEveryKindExactly) {
  const double numbers[] = {0.0,
                            -0.0,
                            1.0,
                            -1.5,
                            0.1,
                            1e-5,
                            1e300,
                            5e-324,
                            3.0e20,
                            std::numeric_limits<double>::infinity(),
                            -std::numeric_limits<double>::infinity(),
                            std::numeric_limits<double>::quiet_NaN(),
                            1.0 / 3};
  const int64_t counts[] = {0, -1, std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  const char* labels[] = {"", "plain", "with \"quotes\" and \\ and \n line", "%0 # } {"};
  const auto body = std::make_shared<const Graph>(small_graph());
  Builder inner("outer");
  const Value x = inner.input(kVec, InputKind::batch, "x");
  inner.output(tag(x, {.body = body}), OutputKind::result, "y");
  const auto nested = std::make_shared<const Graph>(inner.finish());
  for (double scale : numbers)
    for (int64_t count : counts)
      for (const char* label : labels)
        for (const GraphPtr& graph : {GraphPtr(), GraphPtr(body), GraphPtr(nested)}) {
          Builder b("params");
          Value v = b.input(kVec, InputKind::batch, "x");
          v = tag(v, {count > 0, count, scale, label, DType::b8, {count, 0, 7}, graph});
          v = tag(v, {});
          b.output(v, OutputKind::metric, "y");
          expect_round_trip(b.finish());
        }
}

TEST(Parse, AcceptsCommentsFreeSpaceAndAbsentParameters) {
  const Graph g = parse_graph(
      "# a comment\n graph _{input %a:f32[3]batch\"x\"# another\n%b:f32[3]=tag(%a){count=4}\n\n%c: f32[3] = tag(%b) "
      "{scale=2}output %c "
      "result\"y\"}  \n",
      ops());
  EXPECT_EQ(g.name, "");
  EXPECT_EQ(g.nodes[0].get<TagParams>().count, 4);
  EXPECT_EQ(g.nodes[0].get<TagParams>().scale, 1);
  EXPECT_EQ(g.nodes[1].get<TagParams>().scale, 2);  // a whole number where a real one is expected
}

TEST(Parse, ErrorsNameLineColumnAndReason) {
  struct Case {
    const char* text;
    const char* message;
  };
  const Case cases[] = {
      {"", "line 1 column 1: expected `graph`"},
      {"grap g {}", "line 1 column 1: expected `graph`"},
      {"graph g", "line 1 column 8: expected `{`"},
      {"graph g {", "line 1 column 10: expected `input`, `output`, a node or `}`"},
      {"graph g {} x", "line 1 column 12: expected the end of the text"},
      {"graph g {\n  nonsense\n}", "line 2 column 3: expected `input`"},
      {"graph g {\n  input %0: f31[3] batch \"x\"\n}", "line 2 column 16: unknown element type `f31`"},
      {"graph g {\n  input %0: f32[-3] batch \"x\"\n}", "dimension 0 is negative"},
      {"graph g {\n  input %0: f32[1, 1, 1, 1, 1, 1, 1, 1, 1] batch \"x\"\n}", "at most 8 dimensions"},
      {"graph g {\n  input %0: f32[9223372036854775807, 2] batch \"x\"\n}", "overflows"},
      {"graph g {\n  input %0: f32[99999999999999999999] batch \"x\"\n}", "not a whole number of 64 bits"},
      {"graph g {\n  input %0: f32[2.5] batch \"x\"\n}", "expected a whole number"},
      {"graph g {\n  input %0: f32[3 batch \"x\"\n}", "expected `]`"},
      {"graph g {\n  input %0: f32[3] bach \"x\"\n}", "unknown kind of input"},
      {"graph g {\n  input %0: f32[3] batch \"x\n}", "a string without an end"},
      {"graph g {\n  input 0: f32[3] batch \"x\"\n}", "line 2 column 9: expected `%`"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  input %0: f32[3] batch \"y\"\n}",
       "line 3 column 29: %0 is defined twice"},
      {"graph g {\n  output %0 result \"y\"\n}", "line 2 column 12: %0 is not defined"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  output %0 reslt \"y\"\n}", "unknown kind of output"},
      {"graph g {\n  input %0: f32[3] param \"x\"\n  output %0 state \"x\" updates %7\n}", "%7 is not defined"},
      {"graph g {\n  %1: f32[3] = ad(%0)\n}", "unknown op `ad`"},
      {"graph g {\n  %1: f32[3] = add(%0)\n}", "%0 is not defined"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = add(%0)\n}", "`add` takes 2 inputs, got 1"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = many()\n}", "`many` takes -1 inputs, got 0"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[4] = add(%0, %0)\n}",
       "line 3 column 3: `add` gives f32[3], the text says f32[4]"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = split(%0)\n}", "`split` has 2 outputs"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %0: f32[3] = add(%0, %0)\n}", "%0 is defined twice"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  input %1: f32[4] batch \"y\"\n  %2: f32[3] = add(%0, %1)\n}",
       "line 4 column 3: add: f32[3] and f32[4] differ"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {cuont=1}\n}",
       "unknown parameter `cuont`; known: flag, count"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {count=1.5}\n}", "parameter `count`"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {scale=\"a\"}\n}",
       "parameter `scale`: expected a number"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {count=}\n}", "expected a word"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {count 1}\n}", "expected `=`"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {flag=maybe}\n}",
       "`maybe` is not a parameter value"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {scale=1e}\n}", "not a number"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {scale=--1}\n}", "not a whole number"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) {body=graph b {\n    oops\n  }}\n}",
       "line 4 column 5"},
      {"graph g {\n  input %0: f32[3] batch \"x\"\n  %1: f32[3] = tag(%0) @origin\n}", "expected `\"`"},
  };
  for (const Case& c : cases) {
    try {
      parse_graph(c.text, ops());
      ADD_FAILURE() << "accepted: " << c.text;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(c.message), std::string::npos) << c.text << "\n" << e.what();
      EXPECT_NE(std::string(e.what()).find("line "), std::string::npos) << e.what();
    } catch (const std::exception& e) {
      ADD_FAILURE() << "not a UserError: " << c.text << "\n" << e.what();
    }
  }
  // Bodies inside bodies end somewhere.
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "graph g { input %0: f32[1] batch \"x\" %1: f32[1] = tag(%0) {body=";
  EXPECT_THROW(parse_graph(deep, ops()), UserError);
}

// Every prefix and every text with one byte changed parses or is refused; nothing else happens.
TEST(Parse, SurvivesDamagedText) {
  Builder b("damaged");
  const Value x = b.input(kVec, InputKind::batch, "x");
  b.output(tag(x, {true, 3, 0.5, "s", DType::i32, {1, 2}, std::make_shared<const Graph>(small_graph())}),
           OutputKind::result, "y");
  const std::string text = print(b.finish());
  int refused = 0;
  const auto attempt = [&](const std::string& t) {
    try {
      parse_graph(t, ops());
    } catch (const UserError&) {
      ++refused;
    }
  };
  for (size_t i = 0; i < text.size(); ++i) {
    attempt(text.substr(0, i));
    for (char c : {'\0', '"', '%', '[', '-', '9', '{', '\\', '\xff', '\n'}) {
      std::string changed = text;
      changed[i] = c;
      attempt(changed);
    }
  }
  EXPECT_GT(refused, 1000);
}

TEST(Scale, TwentyThousandNodesTakeLessThanASecond) {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  constexpr double kLimit = 20;
#else
  constexpr double kLimit = 1;
#endif
  const std::clock_t start = std::clock();  // of this process: other load does not count
  Builder b("large");
  Value v = b.input({DType::f32, {64, 64}}, InputKind::param, "w");
  for (int i = 0; i < 20000; ++i) {
    Origin scope(b, "layer");
    v = i % 3 ? add(v, v) : tag(v, {.count = i, .list = {i, 1, 2}});
  }
  b.output(v, OutputKind::result, "y");
  const Graph g = b.finish();
  verify(g, Level::lowered);
  const Graph back = parse_graph(print(g), ops());
  verify(back, Level::lowered);
  EXPECT_TRUE(structurally_equal(g, back));
  EXPECT_EQ(structural_hash(g), structural_hash(back));
  const Graph copy = rebuild(back, [](Rebuild&, const Node&) { return std::nullopt; });
  EXPECT_EQ(copy.nodes.size(), 20000u);
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, kLimit);
}

}  // namespace
}  // namespace lathe::ir_test
