#include "backend/kernels/matmul_calls.h"

#include <algorithm>

#include "backend/kernels/conv2d_calls.h"
#include "backend/kernels/loop_calls.h"
#include "base/error.h"

namespace lathe {
namespace {

// The rest of the body behind its one matmul or conv2d.
class ChainFinder {
 public:
  explicit ChainFinder(const FusedParams& p) : kind_(p.kind), g_(*p.body) {}

  std::optional<ProductChain> run(std::string* reason) {
    if (!find_head(reason)) return std::nullopt;
    const Node& head = g_.nodes[head_];
    const ValueId result = head.outputs[0];
    const Types in = g_.types_of(head.inputs);
    ProductChain chain;
    chain.product = kind_ == "matmul"
                        ? matmul_product(in[0].dtype, in[0].shape, in[1].shape, head.get<MatmulParams>())
                        : conv2d_products(ConvPass::forward, in[0], in[1], head.get<Conv2dParams>()).at(0);
    chain.inputs = static_cast<int>(g_.inputs.size());
    chain.product.a.index = input_position(head.inputs[0]);
    chain.product.b.index = input_position(head.inputs[1]);
    chain.product.c.index = output_for(result);
    if (chain.product.c.index < 0) {
      *reason = "no output can hold the product";
      return std::nullopt;
    }
    if (g_.nodes.size() == 1) return chain;
    Graph rest = g_;
    std::erase_if(rest.nodes, [&](const Node& n) { return n.outputs[0] == result; });
    rest.inputs.push_back({result, InputKind::batch, "product"});
    chain.loop = lower_loop(rest, reason);
    if (!chain.loop) return std::nullopt;
    const bool whole = product_splits(chain.product) == 1;
    if (auto e = whole ? epilogue_of(*chain.loop, chain.product) : std::nullopt) {
      chain.product.epilogue = std::move(e);
      chain.loop.reset();
    }
    return chain;
  }

 private:
  bool find_head(std::string* reason) {
    const auto count = std::ranges::count_if(g_.nodes, [&](const Node& n) { return n.is(kind_); });
    if (kind_ == "loop" || count != 1) {
      *reason = kind_ == "loop" ? "a fused node of kind loop" : fmt::format("{} nodes of {} in the body", count, kind_);
      return false;
    }
    while (!g_.nodes[head_].is(kind_)) ++head_;
    for (const ValueId x : g_.nodes[head_].inputs)
      if (input_position(x) < 0) {
        *reason = fmt::format("an input of {} is computed in the body", kind_);
        return false;
      }
    return true;
  }

  int input_position(ValueId v) const {
    for (size_t i = 0; i < g_.inputs.size(); ++i)
      if (g_.inputs[i].value == v) return static_cast<int>(i);
    return -1;
  }

  int output_for(ValueId v) const {
    int fits = -1;
    for (size_t i = 0; i < g_.outputs.size(); ++i) {
      if (g_.outputs[i].value == v) return static_cast<int>(i);
      if (fits < 0 && g_.type(g_.outputs[i].value) == g_.type(v)) fits = static_cast<int>(i);
    }
    return fits;
  }

  // Strides of a read over (all axes but the last, the last); nullopt where the outer axes are not one.
  static std::optional<std::pair<int64_t, int64_t>> by_row(const Shape& domain, const Ints& strides) {
    const int last = domain.ndim() - 1;
    std::optional<int64_t> row;
    int64_t below = 1;  // elements of the axes between the last and this one
    for (int d = last - 1; d >= 0; --d) {
      if (domain[d] == 1) continue;
      const int64_t stride = strides[static_cast<size_t>(d)];
      if (!row) row = stride;
      if (stride != *row * below) return std::nullopt;
      below *= domain[d];
    }
    const int64_t col = domain[last] == 1 ? 0 : strides[static_cast<size_t>(last)];
    if (col != 0 && col != 1) return std::nullopt;
    return std::pair(row.value_or(0), col);
  }

  std::optional<ProductEpilogue> epilogue_of(const LoopProgram& loop, const Product& p) const {
    const Shape& result = g_.type(g_.nodes[head_].outputs[0]).shape;
    if (loop.reduce != LoopReduce::none || loop.domain != result) return std::nullopt;
    ProductEpilogue e;
    e.cols = result.dim(-1);
    e.batch_rows = kind_ == "matmul" ? p.m : 0;
    e.batch_cols = kind_ == "matmul" ? 0 : p.n;
    const int product_input = static_cast<int>(g_.inputs.size());
    std::vector<int32_t> place;  // of each read of the loop
    for (const LoopRead& r : loop.map.reads) {
      if (r.input == product_input) {
        if (r.strides != loop.domain.strides()) return std::nullopt;
        place.push_back(kProductArg);
        continue;
      }
      const auto strides = by_row(loop.domain, r.strides);
      if (!strides) return std::nullopt;
      place.push_back(static_cast<int32_t>(e.reads.size()));
      e.reads.push_back({r.input, r.dtype, strides->first, strides->second});
    }
    e.instrs = loop.map.instrs;
    for (ScalarInstr& i : e.instrs)
      if (i.op == ScalarOp::arg) i.a = place[static_cast<size_t>(i.a)];
    e.stores = loop.map.stores;
    return e;
  }

  std::string_view kind_;
  const Graph& g_;
  size_t head_ = 0;
};

}  // namespace

Product matmul_product(DType dtype, const Shape& a, const Shape& b, const MatmulParams& p) {
  const MatmulDims d = matmul_dims(a, b, p);
  Product out;
  out.dtype = dtype;
  out.batch = d.batch;
  out.m = d.m;
  out.n = d.n;
  out.k = d.k;
  out.c = out_arg(0, dtype);
  out.a = in_arg(0, dtype);
  out.b = in_arg(1, dtype);
  out.a_strides = {d.m * d.k, p.trans_a ? 1 : d.k, p.trans_a ? d.m : 1};
  out.b_strides = {d.k * d.n, p.trans_b ? 1 : d.n, p.trans_b ? d.k : 1};
  out.c_batch = d.m * d.n;
  out.c_row = d.n;
  return out;
}

std::optional<ProductChain> product_chain(const FusedParams& p, std::string* reason) {
  reason->clear();
  return ChainFinder(p).run(reason);
}

int64_t chain_workspace(const ProductChain& c) {
  return std::max(product_workspace(c.product), c.loop ? loop_workspace(make_nest(*c.loop)) : 0);
}

std::vector<KernelCall> chain_calls(const ProductChain& c, const ProductTiles& tiles) {
  std::vector<KernelCall> calls = product_calls(c.product, tiles);
  if (c.loop) {
    // The loop reads the product where it was left: in an output.
    for (KernelCall& call : loop_calls(make_nest(*c.loop), tiles.style, tiles.loop_items)) {
      for (CallArg& a : call.args)
        if (a.kind == CallArg::Kind::in && a.index == c.inputs) a = out_arg(c.product.c.index, a.dtype, a.value);
      calls.push_back(std::move(call));
    }
  }
  return calls;
}

}  // namespace lathe
