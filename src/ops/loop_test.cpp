// Loop programs run by a plain evaluator give what the reference interpreter gives.
#include "ops/loop.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/fused.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/registry.h"
#include "ops/sample.h"

namespace lathe {
namespace {

int64_t offset(const Ints& strides, const Shape& domain, int64_t i) {
  const Ints dense = domain.strides();
  int64_t at = 0;
  for (size_t d = 0; d < dense.size(); ++d) at += i / dense[d] % domain[static_cast<int>(d)] * strides[d];
  return at;
}

// Values of all instructions of a section at point i.
std::vector<double> run_section(const LoopSection& s, const Shape& domain, int64_t i,
                                const std::vector<HostTensor>& inputs, double reduced) {
  std::vector<double> v;
  for (const ScalarInstr& instr : s.instrs) {
    const auto at = [&](int32_t k) { return k < 0 ? 0.0 : v.at(static_cast<size_t>(k)); };
    switch (instr.op) {
      case ScalarOp::arg:
        if (instr.a == kReducedArg) {
          v.push_back(reduced);
        } else {
          const LoopRead& r = s.reads.at(static_cast<size_t>(instr.a));
          EXPECT_EQ(r.dtype, inputs.at(static_cast<size_t>(r.input)).type.dtype);
          v.push_back(inputs[static_cast<size_t>(r.input)].data.at(static_cast<size_t>(offset(r.strides, domain, i))));
        }
        break;
      case ScalarOp::constant: v.push_back(instr.value); break;
      case ScalarOp::convert:
        v.push_back(is_float(instr.dtype) ? at(instr.a) : round_to(instr.dtype, at(instr.a)));
        break;
      default: v.push_back(apply(instr.op, at(instr.a), at(instr.b), at(instr.c)));
    }
  }
  return v;
}

std::vector<HostTensor> run_loop(const LoopProgram& p, const std::vector<HostTensor>& inputs, const Types& out_types) {
  std::vector<HostTensor> out;
  for (const TensorType& t : out_types) out.push_back({t, std::vector<double>(static_cast<size_t>(t.numel()))});
  const double start = p.reduce == LoopReduce::max ? -std::numeric_limits<double>::infinity() : 0;
  std::vector<double> sums(p.reduce == LoopReduce::none ? 0 : static_cast<size_t>(p.reduced.numel()), start);
  const Ints to = p.reduce == LoopReduce::none ? Ints{} : broadcast_strides(p.reduced, p.domain);
  for (int64_t i = 0; i < p.domain.numel(); ++i) {
    const auto v = run_section(p.map, p.domain, i, inputs, 0);
    for (const LoopStore& s : p.map.stores)
      out.at(static_cast<size_t>(s.output)).data.at(static_cast<size_t>(i)) = v.at(static_cast<size_t>(s.instr));
    if (p.reduce == LoopReduce::none) continue;
    double& sum = sums.at(static_cast<size_t>(offset(to, p.domain, i)));
    const double x = v.at(static_cast<size_t>(p.reduce_instr));
    sum = p.reduce == LoopReduce::sum ? sum + x : std::max(sum, x);
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto v = run_section(p.tail, p.reduced, static_cast<int64_t>(i), inputs, sums[i]);
    for (const LoopStore& s : p.tail.stores)
      out.at(static_cast<size_t>(s.output)).data.at(i) = v.at(static_cast<size_t>(s.instr));
  }
  return out;
}

void expect_equal_runs(const LoopProgram& p, const Graph& g, const std::vector<HostTensor>& inputs) {
  Types types;
  for (const Output& o : g.outputs) types.push_back(g.type(o.value));
  // Where 16-bit values are rounded on the way, so is the oracle; nothing else is, the types around them being f32.
  bool narrow = false;
  for (const LoopSection* s : {&p.map, &p.tail}) {
    for (const LoopRead& r : s->reads) narrow = narrow || is_16bit(r.dtype);
    for (const LoopStore& r : s->stores) narrow = narrow || is_16bit(r.dtype);
  }
  const auto want = interpret(g, inputs, narrow ? Precision::rounded : Precision::exact);
  auto got = run_loop(p, inputs, types);
  if (narrow)
    for (HostTensor& t : got)
      for (double& v : t.data) v = round_to(t.type.dtype, v);
  for (size_t k = 0; k < want.size(); ++k)
    for (size_t i = 0; i < want[k].data.size(); ++i)
      ASSERT_NEAR(want[k].data[i], got[k].data[i], 1e-12 * (1 + std::abs(want[k].data[i])))
          << "output " << k << " element " << i;
}

TEST(Loop, EverySampleThatIsALoopRunsAsOne) {
  int loops = 0;
  for (const OpDef* op : registry().all()) {
    uint64_t seed = 1;
    for (const Sample& s : op->samples()) {
      SCOPED_TRACE(fmt::format("{}/{}", op->name(), s.label));
      const Graph g = sample_graph(*op, s);
      std::string reason;
      const auto p = lower_loop(g.nodes[0], g.types_of(g.nodes[0].inputs), &reason);
      const bool expected =
          op->has(kElementwise) || op->has(kReduction) || op == &broadcast_op || op == &full_op || op == &fused_op;
      EXPECT_EQ(p.has_value(), expected) << reason;
      EXPECT_EQ(reason.empty(), expected);
      if (!p) continue;
      expect_equal_runs(*p, g, sample_inputs(s, seed++));
      ++loops;
    }
  }
  EXPECT_GT(loops, 150);
}

Graph body_of(const Types& in, const std::function<Values(Values)>& build) {
  Builder b("body");
  Values x;
  for (size_t i = 0; i < in.size(); ++i) x.push_back(b.input(in[i], InputKind::batch, "x" + std::to_string(i)));
  const Values y = build(x);
  for (size_t i = 0; i < y.size(); ++i) b.output(y[i], OutputKind::result, "y" + std::to_string(i));
  return b.finish();
}

TEST(Loop, BodiesWithBroadcastsReductionsAndTails) {
  const TensorType m{DType::f32, {4, 6}}, row{DType::f32, {6}}, col{DType::f32, {4, 1}}, one{DType::f32, {}},
      ints{DType::i32, {4, 6}};
  struct Case {
    const char* label;
    Types in;
    std::function<Values(Values)> build;
  };
  const Case cases[] = {
      {"row and column", {m, row, col, one}, [](Values x) -> Values { return {(x[0] + x[1]) * x[2] - x[3]}; }},
      {"column first", {m, col}, [](Values x) -> Values { return {x[0] * exp(x[1] * 2.0)}; }},
      {"tail with a row", {m, row}, [](Values x) -> Values { return {reduce_sum(x[0], {0}) * x[1] + 1.0}; }},
      {"tail keeps dims",
       {m, col},
       [](Values x) -> Values { return {sqrt(reduce_sum(square(x[0]), {1}, true) + square(x[1]))}; }},
      {"tail drops an outer axis",
       {{DType::f32, {2, 3, 4}}, {DType::f32, {3, 4}}},
       [](Values x) -> Values { return {reduce_max(x[0], {0}) - x[1]}; }},
      {"tail drops a middle axis",
       {{DType::f32, {2, 3, 4}}, {DType::f32, {2, 4}}},
       [](Values x) -> Values { return {reduce_sum(x[0] * 2.0, {1}) * x[1]}; }},
      {"tail to a scalar", {m, one}, [](Values x) -> Values { return {sum_all(x[0]) * x[1]}; }},
      {"map and tail results",
       {m, row},
       [](Values x) -> Values {
         const Value y = x[0] * x[1];
         const Value s = reduce_sum(y, {1});
         return {y, s, tanh(s)};
       }},
      {"casts and choice",
       {m, ints},
       [](Values x) -> Values {
         const Value flag = less(x[0], cast(x[1], DType::f32));
         return {select(flag, x[0], x[0] * 3.0), cast(flag, DType::i32)};
       }},
      {"mean of a mask",
       {m},
       [](Values x) -> Values {
         return {reduce_mean(cast(less(x[0], constant_like(x[0], 0.5)), DType::f32), {0, 1})};
       }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.label);
    const Graph g = body_of(c.in, c.build);
    std::string reason;
    const auto p = lower_loop(g, &reason);
    ASSERT_TRUE(p) << reason;
    Sample s{"body", {}, nullptr};
    for (const TensorType& t : c.in) s.inputs.push_back({t, 0, 2});
    expect_equal_runs(*p, g, sample_inputs(s, 3));
  }
}

TEST(Loop, RefusalsHaveAReason) {
  const TensorType m{DType::f32, {4, 4}};
  struct Case {
    const char* reason;
    std::function<Values(Values)> build;
  };
  const Case cases[] = {
      {"matmul is not an elementwise node", [](Values x) -> Values { return {matmul(x[0], x[0]) + 1.0}; }},
      {"more than one reduction", [](Values x) -> Values { return {reduce_sum(x[0], {0}) + reduce_sum(x[0], {1})}; }},
      {"output 0 is f32[4, 4], the loop runs over [4, 1]",
       [](Values x) -> Values { return {x[0] - reduce_sum(x[0], {1}, true)}; }},
  };
  for (const Case& c : cases) {
    std::string reason;
    EXPECT_FALSE(lower_loop(body_of({m}, c.build), &reason)) << c.reason;
    EXPECT_NE(reason.find(c.reason), std::string::npos) << reason;
    EXPECT_FALSE(lower_loop(body_of({m}, c.build)));  // the reason is optional
  }
}

}  // namespace
}  // namespace lathe
