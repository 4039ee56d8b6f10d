// Ordered nodes in the plan: they run once, in the order of the graph, whatever that costs in memory.
#include <gtest/gtest.h>

#include "ir/test_effects.h"
#include "plan/budget.h"
#include "plan/plan.h"
#include "plan/shadow.h"
#include "plan/test_graphs.h"

namespace lathe {
namespace {

using ir_test::send;
using ir_test::sent;
using testing::check_set;

const TensorType kLarge{DType::f32, {100, 100}};

// The plain kernels, and one for `send`.
KernelTable table_with_send() {
  std::vector<KernelTable::Row> rows;
  for (KernelTable::Row r : ref_kernels()) {
    r.candidate.workspace = nullptr;
    rows.push_back(r);
    if (r.op == "tanh") rows.push_back({"send", r.candidate});
  }
  return KernelTable(rows);
}

// The result of the first node is needed at the end, that of the second one at once: the other order takes less memory.
Graph first_for_later(bool ordered) {
  Builder b("later");
  const Value x = b.input(kLarge, InputKind::batch, "x"), y = b.input(kLarge, InputKind::batch, "y");
  const auto effect = [&](Value v, int64_t to) { return ordered ? send(v, to) : transpose(v, {1, 0}); };
  const Value late = effect(tanh(x), 1);
  b.output(sum_all(effect(tanh(y), 2)), OutputKind::metric, "sum");
  b.output(tanh(tanh(tanh(tanh(late)))), OutputKind::result, "late");
  return b.finish();
}

TEST(OrderedPlan, KeepsTheOrderThoughAnotherTakesLessMemory) {
  const ProgramSet set = plan({first_for_later(true)}, {}, table_with_send()),
                   pure = plan({first_for_later(false)}, {}, table_with_send());
  check_set(set, {});
  EXPECT_EQ(sent(set.programs[0].graph), (Ints{1, 2}));
  EXPECT_GT(set.programs[0].memory.scratch, pure.programs[0].memory.scratch);
}

TEST(OrderedPlan, KeepsNodesWithoutReaders) {
  Builder b("unread");
  const Value x = b.input(kLarge, InputKind::batch, "x");
  send(x, 1);
  send(x, 1);
  b.output(tanh(x), OutputKind::result, "y");
  const ProgramSet set = plan({b.finish()}, {}, table_with_send());
  check_set(set, {});
  EXPECT_EQ(sent(set.programs[0].graph), (Ints{1, 1}));
}

// Layers whose results are all read again on the way back; every other one is sent.
Graph there_and_back(int layers, bool ordered) {
  Builder b("there_and_back");
  Value x = b.input(kLarge, InputKind::batch, "x");
  Values kept;
  for (int i = 0; i < layers; ++i) {
    x = tanh(x);
    if (i % 2 == 0) x = ordered ? send(x, i) : exp(x);
    kept.push_back(x);
  }
  for (int i = layers; i-- > 0;) x = sin(x) * kept[static_cast<size_t>(i)];
  b.output(x, OutputKind::result, "y");
  return b.finish();
}

// Launches of the op that run again under the smallest budget that is reached.
int64_t launched_again(const Graph& g, std::string_view op, Graph* planned = nullptr) {
  int64_t least = 0;
  try {
    plan({g}, {}, table_with_send(), {.budget = 1});
  } catch (const BudgetError& e) {
    least = e.smallest();
  }
  const ProgramSet set = plan({g}, {}, table_with_send(), {.budget = least});
  check_set(set, {});
  if (planned) *planned = set.programs[0].graph;
  return std::ranges::count_if(set.programs[0].launches,
                               [&](const Launch& l) { return l.again && l.node.op->name() == op; });
}

TEST(OrderedPlan, NothingOrderedRunsAgainUnderABudget) {
  constexpr int kLayers = 12;
  EXPECT_GT(launched_again(there_and_back(kLayers, false), "exp"), 0);
  Graph planned;
  const Graph g = there_and_back(kLayers, true);
  EXPECT_EQ(launched_again(g, "send", &planned), 0);
  EXPECT_GT(launched_again(g, "tanh"), 0);
  EXPECT_EQ(sent(planned), sent(g));
}

}  // namespace
}  // namespace lathe
