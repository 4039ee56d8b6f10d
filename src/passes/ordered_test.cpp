// Ordered nodes are never merged, dropped or moved across each other, whatever speaks for it.
#include <algorithm>

#include "ir/live_nodes.h"
#include "ir/test_effects.h"
#include "ops/cumsum.h"
#include "ops/elementwise.h"
#include "ops/fused.h"
#include "passes/canonicalize.h"
#include "passes/cse.h"
#include "passes/dce.h"
#include "passes/fold.h"
#include "passes/fuse/fuse.h"
#include "passes/test_util.h"

namespace lathe {
namespace {

using ir_test::send;
using ir_test::sent;

const TensorType kRow{DType::f32, {64}};

// Two equal nodes, and results that nobody reads.
Graph three_sends() {
  Builder b("sends");
  const Value x = b.input(kRow, InputKind::batch, "x");
  const Value first = send(x, 1), again = send(x, 1);
  send(tanh(x) * 1.0, 2);
  b.output(first + again, OutputKind::result, "y");
  return b.finish();
}

TEST(Ordered, StayInEveryPass) {
  const Ints all{1, 1, 2};
  for (const auto pass : {cse, dce, fold, canonicalize, fuse}) EXPECT_EQ(sent(pass(three_sends(), {})), all);
  EXPECT_EQ(sent(run_pipeline(three_sends(), {})), all);
  EXPECT_EQ(sent(drop_dead(three_sends())), all);
}

// tanh(x) and the sum would be one loop, before which the second node would run and behind which the first.
TEST(Ordered, NothingIsFusedAcrossThem) {
  const auto graph = [](auto&& effect) {
    Builder b("across");
    const Value x = b.input(kRow, InputKind::batch, "x"), y = b.input(kRow, InputKind::batch, "y");
    const Value h = tanh(x);
    effect(h, 1);
    b.output(h + effect(y, 2), OutputKind::result, "sum");
    return b.finish();
  };
  const Graph now = fuse(graph([](Value v, int64_t to) { return send(v, to); }), {});
  EXPECT_EQ(sent(now), (Ints{1, 2}));
  EXPECT_TRUE(std::ranges::none_of(now.nodes, [](const Node& n) { return n.op == &fused_op; }));
  // Without the effect they are one loop.
  const Graph pure = fuse(graph([](Value v, int64_t) { return cumsum(v, 0); }), {});
  EXPECT_TRUE(std::ranges::any_of(pure.nodes, [](const Node& n) { return n.op == &fused_op; }));
}

// The first node is made to read what the second one sends.
TEST(Ordered, AnEditKeepsThem) {
  Builder b("edit");
  const Value x = b.input(kRow, InputKind::batch, "x");
  const Value early = tanh(x);
  const Value first = send(x, 1), second = send(x, 2);
  b.output(early + first, OutputKind::result, "y");
  Edit e(b.finish());
  e.set_input(0, 0, exp(e.value(second.id())));
  const Graph g = e.finish();
  verify(g, Level::tensor);
  EXPECT_EQ(sent(g), (Ints{1, 2}));
}

TEST(Ordered, APassThatDropsOrMovesThemIsNamed) {
  const std::pair<PassFunction, const char*> broken[] = {
      {[](StepSet s, const PassContext&) {
         std::swap(s.graphs[0].nodes[1], s.graphs[0].nodes[2]);
         return s;
       },
       "ordered node send was dropped or moved"},
      {[](StepSet s, const PassContext&) {
         s.graphs[0].nodes.pop_back();
         return s;
       },
       "ordered node send was dropped or moved"},
  };
  for (const auto& [pass, message] : broken) {
    Builder b("sends");
    const Value x = b.input(kRow, InputKind::batch, "x");
    b.output(tanh(x), OutputKind::result, "y");
    send(x, 1);
    send(x, 2);
    PipelineOptions options;
    options.added = {{"", {"mine", pass, Level::tensor}}};
    try {
      run_pipeline(b.finish(), {}, options);
      ADD_FAILURE() << "not noticed";
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(message), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("pass mine"), std::string::npos) << e.what();
    }
  }
}

}  // namespace
}  // namespace lathe
