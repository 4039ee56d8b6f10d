// Which products are computed in 16 bits, for every op of the registry: the trait and the role say it.
#include "passes/precision.h"

#include <algorithm>

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/expand_nodes.h"
#include "ops/grad.h"
#include "ops/reduce.h"
#include "ops/sample.h"
#include "passes/autodiff.h"
#include "passes/test_util.h"

namespace lathe {
namespace {

// By name: what the pass finds by a trait.
bool is_product(const Node& n) {
  constexpr std::string_view kNames[] = {"matmul", "conv2d", "conv2d_dx", "conv2d_dw", "attention", "attention_grad"};
  return std::ranges::find(kNames, n.op->name()) != std::end(kNames);
}

bool is_narrow(const Graph& g, const Node& n) {
  const auto narrow = [&](ValueId v) { return is_16bit(g.type(v).dtype); };
  // The last operand of attention_grad is a log-sum-exp, which is never of 16 bits.
  const auto end = n.is("attention_grad") ? n.inputs.end() - 1 : n.inputs.end();
  return std::all_of(n.inputs.begin(), end, narrow);
}

Graph opened(Graph g) {
  return expand_where(std::move(g), [](const Graph&, const Node& n) { return !is_product(n); });
}

struct Products {
  int narrow = 0, wide = 0;
};
Products products_of(const Graph& graph) {
  const Graph g = opened(graph);
  Products out;
  for (const Node& n : g.nodes)
    if (is_product(n)) ++(is_narrow(g, n) ? out.narrow : out.wide);
  return out;
}

bool has_16bit(const Graph& g) {
  return std::ranges::any_of(g.types, [](const TensorType& t) { return is_16bit(t.dtype); });
}

const PassContext& bf16() {
  static const PassContext context{{}, PassOptions().set(PrecisionOptions{"bf16"})};
  return context;
}

Graph sample_with(const OpDef& op, const Sample& s, Role role) {
  Graph g = sample_graph(op, s);
  for (Node& n : g.nodes) n.role = role;
  return g;
}

// The op and its derivatives by all float inputs; empty where there are none.
Graph gradients_of(const OpDef& op, const Sample& s, Role role) {
  Builder b("gradients");
  Values x, wrt;
  for (const SampleInput& in : s.inputs) {
    x.push_back(b.input(in.type, InputKind::batch, "x" + std::to_string(x.size())));
    if (is_float(in.type.dtype)) wrt.push_back(x.back());
  }
  b.set_role(role);
  const Value y = b.add(op, x, s.params)[0];
  if (wrt.empty() || !is_float(y.dtype())) return {};
  b.set_role(Role::loss);
  const Values d = grad(sum_all(square(cast(y, DType::f32))), wrt);
  for (size_t i = 0; i < d.size(); ++i) b.output(d[i], OutputKind::result, "d" + std::to_string(i));
  return b.finish();
}

template <class F>
void for_each_sample(F&& f) {
  for (const OpDef* op : registry().all())
    for (const Sample& s : op->samples()) {
      SCOPED_TRACE(fmt::format("{}/{}", op->name(), s.label));
      f(*op, s);
    }
}

TEST(Precision, EveryProductOfTheModelIsNarrow) {
  int with_products = 0;
  for_each_sample([&](const OpDef& op, const Sample& s) {
    const Graph g = sample_with(op, s, Role::model), now = precision(g, bf16());
    verify(now, Level::tensor, "precision");
    const Products before = products_of(g), after = products_of(now);
    EXPECT_GE(after.narrow, before.narrow + before.wide);  // attention_grad is opened: five in the place of one
    EXPECT_EQ(after.wide, 0);
    with_products += after.narrow > 0;
    EXPECT_TRUE(after.narrow > 0 || structurally_equal(now, g));
    if (has_16bit(opened(g))) return;
    // All that is not a product is f32: gates, biases, sums, softmax.
    const Graph parts = opened(now);
    for (const Node& n : parts.nodes)
      for (ValueId v : n.inputs)
        EXPECT_TRUE(is_product(n) || n.is("cast") || !is_16bit(parts.type(v).dtype)) << print_node(parts, n);
  });
  EXPECT_GT(with_products, 40);
}

TEST(Precision, CellsGroupedAttentionAndOtherConvolutionsHaveProducts) {
  for (const char* name : {"lstm_cell", "gru_cell", "grouped_attention", "masked_attention", "conv1d", "conv3d",
                           "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "attention_grad"}) {
    SCOPED_TRACE(name);
    const OpDef& op = *registry().find(name);
    EXPECT_GT(products_of(precision(sample_graph(op, op.samples()[0]), bf16())).narrow, 0);
  }
}

TEST(Precision, LossesMetricsAndUpdatesStayWide) {
  for_each_sample([&](const OpDef& op, const Sample& s) {
    for (const Role role : {Role::loss, Role::metric, Role::update}) {
      const Graph g = sample_with(op, s, role);
      EXPECT_TRUE(structurally_equal(precision(g, bf16()), g)) << to_string(role);
    }
  });
}

TEST(Precision, GradientsOfEveryProductFollow) {
  for_each_sample([&](const OpDef& op, const Sample& s) {
    // What is given in 16 bits computes as its op says.
    if (!op.is_differentiable() || has_16bit(sample_graph(op, s))) return;
    const int forward = products_of(precision(sample_graph(op, s), bf16())).narrow;
    const Graph model = gradients_of(op, s, Role::model), loss = gradients_of(op, s, Role::loss);
    if (model.nodes.empty() || has_16bit(model)) return;  // what comes in 16 bits stays as it is
    const Products of_model = products_of(autodiff(precision(model, bf16()), bf16()));
    EXPECT_EQ(of_model.wide, 0);
    EXPECT_TRUE(forward == 0 || of_model.narrow > forward) << of_model.narrow;
    if (has_16bit(opened(autodiff(loss, {})))) return;
    EXPECT_EQ(products_of(autodiff(precision(loss, bf16()), bf16())).narrow, 0);
  });
}

TEST(Precision, LeavesF32Alone) {
  for_each_sample([&](const OpDef& op, const Sample& s) {
    const Graph g = sample_graph(op, s);
    EXPECT_TRUE(structurally_equal(precision(g, {}), g));
  });
}

}  // namespace
}  // namespace lathe
