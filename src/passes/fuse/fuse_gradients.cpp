#include "passes/fuse/fuse_gradients.h"

#include <algorithm>

#include "ops/matmul.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

class GradientJoin {
 public:
  GradientJoin(const FuseGraph& f, FusePartition& parts, int64_t columns) : f_(f), parts_(parts), columns_(columns) {}

  void run(int32_t product) {
    const TensorType& t = type(product);
    if (t.shape.ndim() != 2 || t.dtype == DType::f64) return;
    if (t.shape.dim(-1) % columns_ == 0) {
      keep_gelu_input(product);
      join_gelu_gradient(product);
    }
    join_bias_gradient(product);
  }

 private:
  const TensorType& type(int32_t i) const { return f_.g.type(f_.node(i).outputs[0]); }
  bool is_alone(int32_t i) const { return f_.live[at(i)] && parts_.of(i).nodes.size() == 1; }

  // product, sums, gelu: others may read the last sum too.
  void keep_gelu_input(int32_t product) {
    const auto& nodes = parts_.of(product).nodes;
    if (!std::all_of(nodes.begin() + 1, nodes.end(), [&](int32_t i) { return f_.node(i).is("add"); })) return;
    for (int32_t next : f_.readers[at(nodes.back())]) {
      // A loop behind gelu computes it better: it stays in registers there.
      const bool loop_behind = std::ranges::any_of(f_.readers[at(next)], [&](int32_t r) {
        return f_.node(r).op->has(kElementwise) || f_.node(r).op->has(kReduction);
      });
      if (f_.node(next).is("gelu") && is_alone(next) && !loop_behind && unite({product, next})) return;
    }
  }

  // mul(product, gelu_slope(z)), and the sum of its rows where somebody wants it.
  void join_gelu_gradient(int32_t product) {
    const int32_t mul = only_reader(product);
    if (mul < 0 || !is_alone(product) || !f_.node(mul).is("mul") || !is_alone(mul)) return;
    const Node& n = f_.node(mul);
    const ValueId other = n.inputs[n.inputs[0] == f_.node(product).outputs[0] ? 1 : 0];
    const int32_t slope = f_.def[at(other)];
    if (slope < 0 || slope == product || !f_.node(slope).is("gelu_slope") || !is_alone(slope)) return;
    if (only_reader(slope) != mul || type(slope) != type(product)) return;
    if (!unite({product, slope, mul})) return;
    for (int32_t r : f_.readers[at(mul)])
      if (sums(r, f_.node(mul).outputs[0], 0) && is_alone(r) && unite({product, r})) return;
  }

  // The sum over k of one operand, unless it is computed in registers where the loop before it made the operand.
  void join_bias_gradient(int32_t product) {
    if (!is_alone(product)) return;
    const auto& p = f_.node(product).get<MatmulParams>();
    const int k_axis[2] = {p.trans_a ? 0 : 1, p.trans_b ? 1 : 0};
    for (size_t side = 0; side < 2; ++side) {
      const ValueId v = f_.node(product).inputs[side];
      const int32_t d = f_.def[at(v)];
      if (d < 0 || f_.node(d).op->has(kElementwise) || f_.transparent[at(d)]) continue;
      for (int32_t r : f_.readers[at(d)])
        if (sums(r, v, k_axis[side]) && is_alone(r) && unite({product, r})) return;
    }
  }

  int32_t only_reader(int32_t i) const {
    return f_.makes_output(i) || f_.readers[at(i)].size() != 1 ? -1 : f_.readers[at(i)][0];
  }

  bool sums(int32_t i, ValueId v, int64_t axis) const {
    const Node& n = f_.node(i);
    if (!n.is("reduce_sum") || n.inputs[0] != v || type(i).dtype != f_.g.type(v).dtype) return false;
    const auto& p = n.get<ReduceParams>();
    return !p.keep_dims && p.axes == Ints{axis};
  }

  // The product, and nodes alone in their groups: each is the id of its group.
  bool unite(std::initializer_list<int32_t> nodes) {
    if (!parts_.merge(nodes)) return false;
    FusePartition::Group& w = parts_[*nodes.begin()];
    w.kind = "matmul";
    w.reduce = -1;  // a fact of loops
    return true;
  }

  const FuseGraph& f_;
  FusePartition& parts_;
  const int64_t columns_;
};

}  // namespace

void join_gradients(const FuseGraph& f, FusePartition& parts, int64_t columns) {
  GradientJoin join(f, parts, columns);
  for (int32_t i = static_cast<int32_t>(f.g.nodes.size()); i-- > 0;)
    if (f.live[at(i)] && f.node(i).is("matmul")) join.run(i);
}

}  // namespace lathe
