#include "ir/live_nodes.h"

#include <gtest/gtest.h>

#include "ir/print.h"
#include "ir/test_ops.h"

namespace lathe::ir_test {
namespace {

// Nobody reads %2; %3 and %4 are read by each other and by nobody else; one result of %5, %6 is enough.
Graph with_dead_nodes() {
  return parse_graph(R"(graph g {
    input %0: f32[3] param "w"
    input %1: f32[3] batch "x"
    %2: f32[3] = add(%0, %1)
    %3: f32[3] = tag(%1)
    %4: f32[3] = tag(%3)
    %5: f32[3], %6: f32[3] = split(%1)
    %7: f32[3] = add(%0, %6)
    output %7 state "w" updates %0
  })",
                     ops());
}

TEST(LiveNodes, AreThoseThatOutputsNeed) {
  EXPECT_EQ(live_nodes(with_dead_nodes()), (std::vector<bool>{false, false, false, true, true}));
  EXPECT_EQ(live_nodes(Graph{}), std::vector<bool>{});
}

TEST(LiveNodes, KeepsWhatMayNotGoAndWhatThatReads) {
  const auto may_drop = [](const Node& n) { return n.is("tag"); };
  EXPECT_EQ(live_nodes(with_dead_nodes(), may_drop), (std::vector<bool>{true, false, false, true, true}));
  int64_t tags = 0;  // the second stays, and so the first does
  const auto but_one = [&](const Node& n) { return !n.is("tag") || ++tags > 1; };
  EXPECT_EQ(live_nodes(with_dead_nodes(), but_one), (std::vector<bool>{false, true, true, true, true}));
}

TEST(LiveNodes, DropDeadKeepsInputsOutputsAndOrder) {
  EXPECT_EQ(print(drop_dead(with_dead_nodes())), print(parse_graph(R"(graph g {
    input %0: f32[3] param "w"
    input %1: f32[3] batch "x"
    %2: f32[3], %3: f32[3] = split(%1)
    %4: f32[3] = add(%0, %3)
    output %4 state "w" updates %0
  })",
                                                                   ops())));
}

}  // namespace
}  // namespace lathe::ir_test
