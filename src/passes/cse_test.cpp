// cse, dce and expand: graphs before and after as text.
#include "passes/cse.h"

#include "passes/dce.h"
#include "passes/expand.h"
#include "passes/test_util.h"

namespace lathe {
namespace {

TEST(Cse, MergesEqualNodesAndTheirReaders) {
  expect_pass(cse, R"(graph g {
    input %0: f32[2, 3] batch "a"
    input %1: f32[2, 3] batch "b"
    %2: f32[2, 3] = add(%0, %1)
    %3: f32[2, 3] = add(%1, %0)
    %4: f32[2, 3] = tanh(%2)
    %5: f32[2, 3] = tanh(%3)
    %6: f32[2, 3] = mul(%4, %5)
    output %6 result "y"
  })",
              R"(graph g {
    input %0: f32[2, 3] batch "a"
    input %1: f32[2, 3] batch "b"
    %2: f32[2, 3] = add(%0, %1)
    %3: f32[2, 3] = tanh(%2)
    %4: f32[2, 3] = mul(%3, %3)
    output %4 result "y"
  })");
}

TEST(Cse, KeepsWhatDiffers) {
  // Other parameters, operands that do not commute, random numbers, and two writers of two states.
  expect_unchanged(cse, R"(graph g {
    input %0: f32[2, 3] batch "a"
    input %1: f32[2, 3] batch "b"
    input %2: i64[2] step "key"
    input %3: i64[2] batch "index"
    input %4: f32[2, 3] param "p"
    input %5: f32[2, 3] param "q"
    %6: f32[2, 3] = sub(%0, %1)
    %7: f32[2, 3] = sub(%1, %0)
    %8: f32[2] = reduce_sum(%6) {axes=[1], keep_dims=false}
    %9: f32[2, 1] = reduce_sum(%6) {axes=[1], keep_dims=true}
    %10: f32[2, 3] = random_uniform(%2, %3) {stream=1, shape=[2, 3]}
    %11: f32[2, 3] = random_uniform(%2, %3) {stream=1, shape=[2, 3]}
    %12: f32[2, 3] = add(%10, %11)
    %13: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=0.0}
    %14: f32[2, 3] = full() {dtype=f32, shape=[2, 3], value=0.0}
    output %7 result "y"
    output %8 result "s"
    output %9 result "t"
    output %12 result "r"
    output %13 state "p" updates %4
    output %14 state "q" updates %5
  })");
}

TEST(Dce, DropsWhatNobodyNeeds) {
  expect_pass(dce, R"(graph g {
    input %0: f32[2] batch "a"
    %1: f32[2] = tanh(%0)
    %2: f32[2] = exp(%1)
    %3: f32[2] = relu(%2)
    output %1 result "y"
  })",
              R"(graph g {
    input %0: f32[2] batch "a"
    %1: f32[2] = tanh(%0)
    output %1 result "y"
  })");
}

TEST(Expand, LeavesWhatTheTargetHasAKernelFor) {
  const char* text = R"(graph g {
    input %0: f32[2, 5] batch "a"
    %1: f32[2, 5] = softmax(%0)
    output %1 result "y"
  })";
  PassContext native;
  native.target.native_ops = {"matmul", "softmax"};
  expect_unchanged(expand, text, native);
  const Graph g = parse_graph(text, registry()), primitive = expand(g, {});
  EXPECT_GT(primitive.nodes.size(), 1u);
  for (const Node& n : primitive.nodes) EXPECT_FALSE(n.op->is_composite()) << n.op->name();
  expect_same_meaning(g, primitive);
}

TEST(Expand, NeverOpensFusedNodes) {
  expect_unchanged(expand, R"(graph g {
    input %0: f32[2] batch "a"
    %1: f32[2] = fused(%0) {kind="loop", body=graph body {
      input %0: f32[2] batch "x0"
      %1: f32[2] = tanh(%0)
      %2: f32[2] = exp(%1)
      output %2 result "y0"
    }}
    output %1 result "y"
  })");
}

// Every composite of the registry, from its samples.
TEST(Expand, ReachesPrimitivesFromEveryComposite) {
  for (const OpDef* op : registry().all()) {
    if (!op->is_composite() || op->name() == "fused") continue;
    for (const Sample& s : op->samples()) {
      SCOPED_TRACE(std::string(op->name()) + " " + s.label);
      Builder b("g");
      Values args;
      for (size_t i = 0; i < s.inputs.size(); ++i)
        args.push_back(b.input(s.inputs[i].type, InputKind::batch, "x" + std::to_string(i)));
      const Values out = b.add(*op, args, s.params);
      for (size_t i = 0; i < out.size(); ++i) b.output(out[i], OutputKind::result, "y" + std::to_string(i));
      const Graph g = expand(b.finish(), {});
      verify(g, Level::tensor, "expand");
      for (const Node& n : g.nodes) EXPECT_FALSE(n.op->is_composite()) << n.op->name();
    }
  }
}

}  // namespace
}  // namespace lathe
