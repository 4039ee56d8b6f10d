#include "ops/fused.h"

#include <algorithm>

#include "ir/interpret.h"
#include "ir/rewrite.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

struct Fused {
  using Params = FusedParams;
  static constexpr OpInfo info{.name = "fused", .doc = "several nodes as one kernel", .inputs = -1};

  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(p.body, "fused: no body");
    LATHE_USER_CHECK(x.size() == p.body->inputs.size(), "fused: the body takes {} inputs, got {}",
                     p.body->inputs.size(), x.size());
    for (size_t i = 0; i < x.size(); ++i)
      LATHE_USER_CHECK(x[i] == p.body->type(p.body->inputs[i].value), "fused: input {} is {}, the body takes {}", i,
                       to_string(x[i]), to_string(p.body->type(p.body->inputs[i].value)));
    Types out;
    for (const Output& o : p.body->outputs) out.push_back(p.body->type(o.value));
    return out;
  }

  static Values expand(Builder& b, ArgValues x, const Params& p) { return inline_graph(b, *p.body, x); }

  static Cost cost(ArgTypes in, ArgTypes out, const Params& p) {
    Cost c = detail::cost_of_bytes(in, out);
    for (const Node& n : p.body->nodes) c.flops += p.body->cost(n).flops;
    return c;
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::vector<HostTensor> inputs;
    for (const RefTensor& t : x) inputs.push_back({t.type, std::vector<double>(t.data, t.data + t.numel())});
    const auto results = interpret(*p.body, inputs, Precision::exact);
    for (size_t i = 0; i < results.size(); ++i) std::ranges::copy(results[i].data, y[i].data);
  }

  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    const auto add = [&](const char* label, const char* kind, const std::vector<TensorType>& in, auto&& build) {
      Builder b("body");
      Values args;
      Sample s{label, {}, nullptr};
      for (size_t i = 0; i < in.size(); ++i) {
        args.push_back(b.input(in[i], InputKind::batch, "x" + std::to_string(i)));
        s.inputs.push_back({in[i], 0.1, 1});
      }
      const Values results = build(args);
      for (size_t i = 0; i < results.size(); ++i) b.output(results[i], OutputKind::result, "y" + std::to_string(i));
      s.params = make_params(Params{kind, std::make_shared<const Graph>(b.finish())});
      out.push_back(std::move(s));
    };
    const TensorType m{DType::f32, {6, 300}}, row{DType::f32, {300}}, col{DType::f32, {6, 1}};
    add("chain", "loop", {m, row}, [](const Values& x) -> Values { return {relu(x[0] * x[1] + 0.5)}; });
    add("two_outputs", "loop", {m, m}, [](const Values& x) -> Values {
      const Value s = x[0] + x[1];
      return {s, tanh(s)};
    });
    add("column", "loop", {m, col}, [](const Values& x) -> Values { return {exp(x[0] - x[1])}; });
    add("sum_of_squares", "loop", {m}, [](const Values& x) -> Values { return {sum_all(square(x[0]))}; });
    add("mean_rows", "loop", {m},
        [](const Values& x) -> Values { return {rsqrt(reduce_sum(square(x[0]), {1}, true) * (1.0 / 300) + 1e-5)}; });
    add("columns", "loop", {m, col}, [](const Values& x) -> Values { return {reduce_sum(x[0] * x[1], {0})}; });
    add("max_rows", "loop", {m}, [](const Values& x) -> Values { return {reduce_max(x[0], {1}, true)}; });
    add("value_and_sum", "loop", {m, col}, [](const Values& x) -> Values {
      const Value e = exp(x[0] - x[1]);
      return {e, reduce_sum(e, {1}, true)};
    });
    // 16-bit values are rounded between the nodes too: each of these differs without it.
    const TensorType h{DType::f16, {6, 300}}, bf{DType::bf16, {6, 300}};
    add("chain_f16", "loop", {h, {DType::f16, {300}}},
        [](const Values& x) -> Values { return {(x[0] * x[1] + 0.3) * x[0]}; });
    add("sums_bf16", "loop", {bf, {DType::bf16, {6, 1}}},
        [](const Values& x) -> Values { return {reduce_sum(square(x[0]) * x[1], {0}) * 0.3}; });
    add("widened", "loop", {bf, h}, [](const Values& x) -> Values {
      return {cast(exp(cast(x[0], DType::f32) - cast(x[1], DType::f32)) * 0.7, DType::bf16)};
    });
    return out;
  }
};

}  // namespace

constinit const OpDef fused_op = make_op<Fused>();

}  // namespace lathe
