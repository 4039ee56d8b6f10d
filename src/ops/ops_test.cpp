// Facts that hold for every op, drawn from the registry.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>

#include "ir/print.h"
#include "ir/verify.h"
#include "ops/expand_nodes.h"
#include "ops/fused.h"
#include "ops/registry.h"
#include "ops/sample.h"

namespace lathe {
namespace {

// Reference and expansion of a composite both run in f64 and differ by rounding alone.
constexpr double kExpansionTolerance = 1e-11;

template <class F>
void for_each_sample(F&& f) {
  for (const OpDef* op : registry().all()) {
    uint64_t seed = 1;
    for (const Sample& s : op->samples()) {
      SCOPED_TRACE(fmt::format("{}/{}", op->name(), s.label));
      f(*op, s, seed++);
    }
  }
}

TEST(Registry, EveryOpIsNamedDocumentedAndHasSamples) {
  EXPECT_GT(registry().all().size(), 50u);
  for (const OpDef* op : registry().all()) {
    SCOPED_TRACE(op->name());
    EXPECT_EQ(registry().find(op->name()), op);
    EXPECT_FALSE(op->info.doc.empty());
    for (char c : op->name()) EXPECT_TRUE((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_');
    EXPECT_EQ(op->runs_alone(), op->name() != "grad" && !op->is_collective()) << op->name();
    for (const Sample& s : op->samples()) {
      EXPECT_FALSE(s.label.empty());
      EXPECT_TRUE(op->info.inputs < 0 || static_cast<int>(s.inputs.size()) == op->info.inputs) << s.label;
    }
  }
  EXPECT_EQ(registry().find("no_such_op"), nullptr);
  EXPECT_EQ(registry().find(""), nullptr);
}

TEST(Samples, VerifyPrintAndParseBack) {
  for_each_sample([](const OpDef& op, const Sample& s, uint64_t) {
    const Graph g = sample_graph(op, s);
    verify(g, Level::lowered);
    const std::string text = print(g);
    const Graph back = parse_graph(text, registry());
    EXPECT_TRUE(structurally_equal(g, back)) << text;
    EXPECT_EQ(structural_hash(g), structural_hash(back));
    EXPECT_EQ(print(back), text);
  });
}

TEST(Samples, RunAndGiveFiniteValuesWithinTheirTypes) {
  for_each_sample([](const OpDef& op, const Sample& s, uint64_t seed) {
    const Graph g = sample_graph(op, s);
    const auto inputs = sample_inputs(s, seed);
    const auto exact = interpret(g, inputs, Precision::exact), rounded = interpret(g, inputs, Precision::rounded);
    for (size_t k = 0; k < exact.size(); ++k)
      for (size_t i = 0; i < exact[k].data.size(); ++i) {
        const double v = exact[k].data[i];
        ASSERT_TRUE(std::isfinite(v)) << "output " << k << " element " << i;
        const DType t = exact[k].type.dtype;
        if (&op == &fused_op && is_16bit(t))  // rounded in its body too
          ASSERT_NEAR(rounded[k].data[i], v, (t == DType::f16 ? 4e-3 : 3e-2) * std::abs(v));
        else
          ASSERT_EQ(rounded[k].data[i], round_to(t, v));
      }
  });
}

TEST(Samples, CostIsFiniteAndCountsTheOutputs) {
  for_each_sample([](const OpDef& op, const Sample& s, uint64_t) {
    const Graph g = sample_graph(op, s);
    const Cost c = g.cost(g.nodes[0]);
    EXPECT_TRUE(std::isfinite(c.flops) && c.flops >= 0);
    EXPECT_TRUE(std::isfinite(c.bytes_read) && c.bytes_read >= 0);
    double bytes = 0;
    for (const Output& o : g.outputs) bytes += static_cast<double>(g.type(o.value).bytes());
    EXPECT_EQ(c.bytes_written, op.has(kView) ? 0 : bytes);
  });
}

TEST(Samples, ExpansionsEqualTheReference) {
  int composites = 0;
  for_each_sample([&](const OpDef& op, const Sample& s, uint64_t seed) {
    if (!op.is_composite()) return;
    ++composites;
    const Graph g = sample_graph(op, s);
    const Graph expanded =
        expand_where(g, [first = true](const Graph&, const Node&) mutable { return std::exchange(first, false); });
    verify(expanded, Level::tensor);
    for (const Node& n : expanded.nodes) EXPECT_NE(n.op, &op) << "expands into itself";
    const auto inputs = sample_inputs(s, seed);
    const auto want = interpret(g, inputs, Precision::exact), got = interpret(expanded, inputs, Precision::exact);
    ASSERT_EQ(want.size(), got.size());
    for (size_t k = 0; k < want.size(); ++k) {
      ASSERT_EQ(want[k].type, got[k].type);
      for (size_t i = 0; i < want[k].data.size(); ++i)
        ASSERT_NEAR(want[k].data[i], got[k].data[i], kExpansionTolerance * (1 + std::abs(want[k].data[i])))
            << "output " << k << " element " << i;
    }
  });
  EXPECT_GT(composites, 40);
}

TEST(Samples, InputsAreAFunctionOfTheSeed) {
  for_each_sample([](const OpDef&, const Sample& s, uint64_t seed) {
    const auto a = sample_inputs(s, seed), b = sample_inputs(s, seed);
    for (size_t k = 0; k < a.size(); ++k) {
      EXPECT_EQ(a[k].data, b[k].data);
      for (double v : a[k].data) {
        ASSERT_LE(v, s.inputs[k].hi + s.inputs[k].gap);
        ASSERT_GE(v, s.inputs[k].lo - s.inputs[k].gap);
        ASSERT_TRUE(!is_float(a[k].type.dtype) || std::abs(v) >= s.inputs[k].gap * (1 - 1e-6));
      }
    }
  });
}

}  // namespace
}  // namespace lathe
