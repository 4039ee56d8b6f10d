// Golden tests of passes: a graph before and after as text, equal in structure and in meaning.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ir/print.h"
#include "ir/rewrite.h"
#include "ops/registry.h"
#include "passes/check/random_graph.h"
#include "passes/check/validate.h"
#include "passes/pass.h"

namespace lathe {

inline void expect_same_meaning(const Graph& a, const Graph& b, uint64_t seed = 7) {
  const auto inputs = random_inputs(a, seed);
  const auto x = interpret(a, inputs, Precision::exact), y = interpret(b, inputs, Precision::exact);
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_LT(relative_error(y[i], x[i]), 1e-12) << "output " << a.outputs[i].name;
}

inline Graph expect_pass(Graph (*pass)(Graph, const PassContext&), const std::string& before, const std::string& after,
                         const PassContext& context = {}) {
  const Graph g = parse_graph(before, registry()), expected = parse_graph(after, registry());
  Graph now = pass(g, context);
  verify(now, Level::tensor, "the pass under test");
  EXPECT_TRUE(structurally_equal(now, expected)) << "got\n" << print(now) << "\nexpected\n" << print(expected);
  expect_same_meaning(g, now);
  return now;
}

// The pass returns the graph as it is.
inline void expect_unchanged(Graph (*pass)(Graph, const PassContext&), const std::string& text,
                             const PassContext& context = {}) {
  expect_pass(pass, text, text, context);
}

}  // namespace lathe
