// Rows about shapes: views of views, broadcasts of broadcasts, reductions over nothing, and reshapes that sink below
// elementwise nodes so that these stand next to their producers, where fuse finds them.
#include <algorithm>
#include <utility>

#include "ops/broadcast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/pad.h"
#include "ops/reduce.h"
#include "ops/reshape.h"
#include "passes/canonicalize.h"

namespace lathe {
namespace {

Value same_shape(const Match& m) { return m.x[0].shape() == m.out.shape ? m.x[0] : Value(); }

Value reshape_of_reshape(const Match& m) {
  return m.is(m.x[0], "reshape") ? reshape(m.arg(m.x[0]), m.out.shape) : Value();
}

// One number has any shape.
Value reshape_of_broadcast(const Match& m) {
  if (!m.is(m.x[0], "broadcast") || m.arg(m.x[0]).shape().numel() != 1) return {};
  return broadcast_to(reshape(m.arg(m.x[0]), {}), m.out.shape);
}

Value broadcast_of_broadcast(const Match& m) {
  return m.is(m.x[0], "broadcast") ? broadcast_to(m.arg(m.x[0]), m.out.shape) : Value();
}

// Adds axes of size 1 only: a view.
Value broadcast_of_ones(const Match& m) {
  return m.x[0].shape().numel() == m.out.shape.numel() && m.out.shape.numel() > 0 ? reshape(m.x[0], m.out.shape)
                                                                                  : Value();
}

std::span<const int64_t> without_leading_ones(const Shape& s) {
  auto dims = s.dims();
  while (!dims.empty() && dims.front() == 1) dims = dims.subspan(1);
  return dims;
}

// broadcast puts missing axes in front itself.
Value broadcast_of_leading_ones(const Match& m) {
  if (!m.is(m.x[0], "reshape")) return {};
  const Value inner = m.arg(m.x[0]);
  if (!std::ranges::equal(without_leading_ones(inner.shape()), without_leading_ones(m.x[0].shape()))) return {};
  return inner.ndim() <= m.out.shape.ndim() ? broadcast_to(inner, m.out.shape) : Value();
}

// All reduced axes have size 1 (or there are none): the elements stay as they are.
Value reduce_of_ones(const Match& m) {
  const bool ones = std::ranges::all_of(m.n.get<ReduceParams>().axes,
                                        [&](int64_t a) { return m.x[0].shape()[static_cast<int>(a)] == 1; });
  return ones ? reshape(m.x[0], m.out.shape) : Value();
}

// The axes of `inner` that make up the axes `axes` of `outer`, a reshape of it; nullopt where an axis of one is part of
// a reduced and of a kept axis of the other.
std::optional<Ints> same_axes(const Shape& outer, const Ints& axes, const Shape& inner) {
  Ints out;
  for (int o = 0, i = 0; o < outer.ndim() || i < inner.ndim();) {
    // The shortest run of axes on both sides with the same number of elements.
    const int first_o = o, first_i = i;
    int64_t size_o = o < outer.ndim() ? outer[o++] : 1, size_i = i < inner.ndim() ? inner[i++] : 1;
    while (size_o != size_i) {
      if (size_o < size_i && o < outer.ndim())
        size_o *= outer[o++];
      else if (size_i < size_o && i < inner.ndim())
        size_i *= inner[i++];
      else
        return std::nullopt;
    }
    const auto reduced = std::count_if(axes.begin(), axes.end(), [&](int64_t a) { return a >= first_o && a < o; });
    if (reduced != 0 && reduced != o - first_o) return std::nullopt;
    for (int k = first_i; reduced && k < i; ++k) out.push_back(k);
  }
  return out;
}

// Over the axes of the elementwise node behind the reshape, with which fuse can then merge it; the same sums in the
// same order.
Value reduce_of_reshape(const Match& m) {
  if (!m.is(m.x[0], "reshape") || m.out.shape.numel() == 0) return {};
  const Value inner = m.arg(m.x[0]);
  const Node* d = m.node(inner);
  if (!d || !d->op->has(kElementwise)) return {};
  const auto axes = same_axes(m.x[0].shape(), m.n.get<ReduceParams>().axes, inner.shape());
  if (!axes || axes->empty()) return {};
  return reshape(m.b.add1(*m.n.op, std::span(&inner, 1), ReduceParams{*axes, m.n.get<ReduceParams>().keep_dims}),
                 m.out.shape);
}

// The only axis along which a pad with zeros adds elements (outside, not between); -1 for other pads.
int pad_axis(const Match& m, Value v) {
  if (!m.is(v, "pad") || !m.only_use(v)) return -1;
  const PadParams& p = m.params<PadParams>(v);
  int axis = -1;
  for (int i = 0; i < v.ndim(); ++i) {
    const size_t k = static_cast<size_t>(i);
    if (p.low[k] == 0 && p.high[k] == 0 && p.interior[k] == 0) continue;
    if (axis >= 0 || p.low[k] < 0 || p.high[k] < 0 || p.interior[k] != 0) return -1;
    axis = i;
  }
  return p.value == 0 ? axis : -1;
}

// Gradients of neighbouring slices: pad(a) + pad(b) -> pad(concat(a, b)).
Value add_of_pads(const Match& m) {
  const int axis = pad_axis(m, m.x[0]);
  if (axis < 0 || pad_axis(m, m.x[1]) != axis) return {};
  Value first = m.x[0], second = m.x[1];
  const size_t k = static_cast<size_t>(axis);
  if (m.params<PadParams>(first).low[k] > m.params<PadParams>(second).low[k]) std::swap(first, second);
  const PadParams p = m.params<PadParams>(first), q = m.params<PadParams>(second);
  const Value parts[] = {m.arg(first), m.arg(second)};
  if (p.low[k] + parts[0].dim(axis) != q.low[k]) return {};
  return pad(concat(parts, axis), p.low, q.high);
}

Value concat_of_concat(const Match& m) {
  const int64_t axis = m.n.get<ConcatParams>().axis;
  Values parts;
  for (const Value& v : m.x) {
    if (m.is(v, "concat") && m.only_use(v) && m.params<ConcatParams>(v).axis == axis) {
      for (size_t i = 0; i < m.node(v)->inputs.size(); ++i) parts.push_back(m.arg(v, static_cast<int>(i)));
    } else {
      parts.push_back(v);
    }
  }
  return parts.size() > m.x.size() ? concat(parts, static_cast<int>(axis)) : Value();
}

bool has_epilogue(const Node& n) { return n.is("matmul") || n.is("conv2d"); }

// How much a value wants elementwise readers under its own shape, which fuse can then merge with its node: 3 behind a
// matmul or convolution (within `depth` elementwise nodes), 2 for other elementwise nodes and reductions, 1 for other
// nodes, 0 for inputs.
int attraction(const Match& m, Value v, int depth = 3) {
  const Node* d = m.node(v);
  if (!d) return 0;
  if (has_epilogue(*d)) return 3;
  if (!d->op->has(kElementwise)) return d->op->has(kReduction) ? 2 : 1;
  for (size_t i = 0; depth > 0 && i < d->inputs.size(); ++i)
    if (attraction(m, m.arg(v, static_cast<int>(i)), depth - 1) == 3) return 3;
  return 2;
}

// `v` read under the shape `inner` of equal size; invalid where that costs more than it saves.
Value under_shape(const Match& m, Value v, Value source) {
  const Shape inner = source.shape();
  if (m.is(v, "reshape") && m.arg(v).shape() == inner) return m.arg(v);
  if (const auto c = m.constant(v)) return full(m.b, {v.dtype(), inner}, *c);
  if (m.is(v, "broadcast")) {
    const Value small = m.arg(v);
    // One number, or a vector along a last axis that both shapes share.
    const bool vector = small.ndim() == 1 && v.ndim() > 0 && inner.ndim() > 0 && inner.dim(-1) == v.dim(-1);
    return small.ndim() == 0 || vector ? broadcast_to(small, inner) : Value();
  }
  // A reshape of v cuts it off from this node: only for the stronger pull (strictly, or two reshapes would swap places
  // forever), and not where v could vanish into a loop with it.
  const int pull = attraction(m, v);
  if (pull >= attraction(m, source) || (pull == 2 && m.only_use(v))) return {};
  return reshape(v, inner);
}

// op(reshape(a), b, ...) -> reshape(op(a, reshape(b), ...))
Value sink_reshape(const Match& m) {
  if (!m.n.op->has(kElementwise)) return {};
  for (const Value& x : m.x) {
    // Only behind a computation: for an input, the outer shape is as good.
    if (!m.is(x, "reshape") || !m.node(m.arg(x))) continue;
    Values args;
    for (const Value& v : m.x) {
      args.push_back(under_shape(m, v, m.arg(x)));
      if (!args.back().valid()) break;
    }
    if (args.back().valid()) return reshape(m.b.add(*m.n.op, args, m.n.params)[0], m.out.shape);
  }
  return {};
}

constexpr Rule kShapeRules[] = {
    {"reshape_same", "reshape", same_shape},
    {"reshape_reshape", "reshape", reshape_of_reshape},
    {"reshape_broadcast", "reshape", reshape_of_broadcast},
    {"broadcast_same", "broadcast", same_shape},
    {"broadcast_broadcast", "broadcast", broadcast_of_broadcast},
    {"broadcast_leading_ones", "broadcast", broadcast_of_leading_ones},
    {"broadcast_ones", "broadcast", broadcast_of_ones},
    {"reduce_sum_ones", "reduce_sum", reduce_of_ones},
    {"reduce_max_ones", "reduce_max", reduce_of_ones},
    {"reduce_sum_reshape", "reduce_sum", reduce_of_reshape},
    {"reduce_max_reshape", "reduce_max", reduce_of_reshape},
    {"pad_nothing", "pad", same_shape},
    {"add_pads", "add", add_of_pads},
    {"concat_concat", "concat", concat_of_concat},
    {"sink_reshape", "", sink_reshape},
};

}  // namespace

std::span<const Rule> shape_rules() { return kShapeRules; }

}  // namespace lathe
