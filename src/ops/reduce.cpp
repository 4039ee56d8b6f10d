#include "ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/broadcast.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/reshape.h"

namespace lathe {

Shape reduced_shape(const Shape& x, const ReduceParams& p) {
  Ints out;
  size_t next = 0;
  for (int i = 0; i < x.ndim(); ++i) {
    if (next < p.axes.size() && p.axes[next] == i) {
      ++next;
      if (p.keep_dims) out.push_back(1);
    } else {
      out.push_back(x[i]);
    }
  }
  return Shape(out);
}

void for_each_reduced(const Shape& x, const ReduceParams& p, const std::function<void(int64_t, int64_t)>& f) {
  ReduceParams keep = p;
  keep.keep_dims = true;
  const Ints dense = x.strides(), to = broadcast_strides(reduced_shape(x, keep), x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t at = 0;
    for (int d = 0; d < x.ndim(); ++d) at += i / dense[static_cast<size_t>(d)] % x[d] * to[static_cast<size_t>(d)];
    f(i, at);
  }
}

Value spread_reduced(Value y, const Shape& x, const ReduceParams& p) {
  ReduceParams keep = p;
  keep.keep_dims = true;
  return broadcast_to(reshape(y, reduced_shape(x, keep)), x);
}

Ints sorted_axes(Ints axes, int ndim, const char* op) {
  for (int64_t& a : axes) a = normalize_axis(a, ndim, op);
  std::ranges::sort(axes);
  return axes;
}

namespace {

Types infer_reduce(const char* name, ArgTypes x, const ReduceParams& p) {
  LATHE_USER_CHECK(x[0].dtype != DType::b8, "{}: bool is not a number; cast it", name);
  for (size_t i = 0; i < p.axes.size(); ++i) {
    LATHE_USER_CHECK(p.axes[i] >= 0 && p.axes[i] < x[0].shape.ndim(), "{}: axis {} is out of range for {}", name,
                     p.axes[i], to_string(x[0].shape));
    LATHE_USER_CHECK(i == 0 || p.axes[i - 1] < p.axes[i], "{}: axes must ascend without repeats", name);
  }
  return {{x[0].dtype, reduced_shape(x[0].shape, p)}};
}

// Along the axes that are not reduced.
PlacementRows rows_of_kept_axes(ArgTypes x, const ReduceParams& p) {
  PlacementRows rows;
  int out = 0;
  for (int i = 0; i < x[0].shape.ndim(); ++i) {
    const bool reduced = std::ranges::binary_search(p.axes, i);
    if (!reduced) rows.push_back({{split_along(i)}, {split_along(out)}});
    if (!reduced || p.keep_dims) ++out;
  }
  return rows;
}

Cost reduce_cost(ArgTypes in, ArgTypes out) {
  Cost c = detail::cost_of_bytes(in, out);
  c.flops = static_cast<double>(in[0].numel());
  return c;
}

std::vector<Sample> reduce_samples() {
  const auto s = [](const char* label, Shape shape, Ints axes, bool keep = false) {
    return Sample{label, {{{DType::f32, shape}}}, make_params(ReduceParams{std::move(axes), keep})};
  };
  return {s("rows", {4, 33}, {1}),
          s("columns", {70, 5}, {0}),
          s("all", {3, 4, 5}, {0, 1, 2}),
          s("keep", {3, 9}, {1}, true),
          s("outer", {6, 5, 7}, {0, 2}),
          s("middle", {3, 8, 5}, {1}),
          s("long", {2, 5000}, {1}),
          s("tall", {3000, 3}, {0}),
          s("none", {3, 4}, {}),
          s("channels", {4, 5, 5, 6}, {0, 1, 2}),
          {"i32", {{{DType::i32, {5, 6}}, -9, 9}}, make_params(ReduceParams{{1}, false})}};
}

struct ReduceSum {
  using Params = ReduceParams;
  static constexpr OpInfo info{.name = "reduce_sum", .doc = "sum over axes", .inputs = 1, .traits = kReduction};
  static Types infer(ArgTypes x, const Params& p) { return infer_reduce("reduce_sum", x, p); }
  static Values vjp(const Vjp& v, const Params& p) { return {spread_reduced(v.dy(), v.x[0].shape(), p)}; }
  static Cost cost(ArgTypes in, ArgTypes out, const Params&) { return reduce_cost(in, out); }
  static PlacementRows placements(ArgTypes x, ArgTypes, const Params& p) {
    PlacementRows rows = rows_of_kept_axes(x, p);
    rows.push_back({{kPartial}, {kPartial}});
    for (const int64_t axis : p.axes) rows.push_back({{split_along(static_cast<int>(axis))}, {kPartial}});
    return rows;
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 0.0);
    for_each_reduced(x[0].shape(), p, [&](int64_t from, int64_t to) { y[0][to] += x[0][from]; });
  }
  static std::vector<Sample> samples() {
    auto out = reduce_samples();
    out.push_back({"nothing", {{{DType::f32, {3, 0}}}}, make_params(Params{{1}, false})});
    return out;
  }
};

struct ReduceMax {
  using Params = ReduceParams;
  static constexpr OpInfo info{
      .name = "reduce_max", .doc = "maximum over axes; NaN if any is", .inputs = 1, .traits = kReduction | kExact};
  static Types infer(ArgTypes x, const Params& p) {
    for (int64_t a : p.axes)
      LATHE_USER_CHECK(a < 0 || a >= x[0].shape.ndim() || x[0].shape[static_cast<int>(a)] > 0,
                       "reduce_max: maximum of nothing (axis {} of {})", a, to_string(x[0].shape));
    return infer_reduce("reduce_max", x, p);
  }
  // The cotangent is shared equally by all elements that attain the maximum.
  static Values vjp(const Vjp& v, const Params& p) {
    const Value x = v.x[0];
    const Value hit = cast(equal(x, spread_reduced(v.y[0], x.shape(), p)), x.dtype());
    const Value count = reduce_sum(hit, p.axes, p.keep_dims);
    return {hit * spread_reduced(v.dy() / count, x.shape(), p)};
  }
  static Cost cost(ArgTypes in, ArgTypes out, const Params&) { return reduce_cost(in, out); }
  static PlacementRows placements(ArgTypes x, ArgTypes, const Params& p) { return rows_of_kept_axes(x, p); }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), -std::numeric_limits<double>::infinity());
    for_each_reduced(x[0].shape(), p, [&](int64_t from, int64_t to) {
      if (x[0][from] > y[0][to] || std::isnan(x[0][from])) y[0][to] = x[0][from];
    });
  }
  static std::vector<Sample> samples() { return reduce_samples(); }
};

Value reduce(const OpDef& op, Value x, Ints axes, bool keep_dims) {
  return x.builder().add1(op, std::span(&x, 1),
                          ReduceParams{sorted_axes(std::move(axes), x.ndim(), op.name().data()), keep_dims});
}

}  // namespace

constinit const OpDef reduce_sum_op = make_op<ReduceSum>();
constinit const OpDef reduce_max_op = make_op<ReduceMax>();

Value reduce_sum(Value x, Ints axes, bool keep_dims) {
  if (axes.empty()) return x;
  return reduce(reduce_sum_op, x, std::move(axes), keep_dims);
}
Value reduce_max(Value x, Ints axes, bool keep_dims) { return reduce(reduce_max_op, x, std::move(axes), keep_dims); }

Value reduce_mean(Value x, Ints axes, bool keep_dims) {
  double count = 1;
  for (int64_t a : axes) count *= static_cast<double>(x.dim(static_cast<int>(a)));
  return reduce_sum(x, std::move(axes), keep_dims) * (1.0 / count);
}

Value sum_all(Value x) {
  Ints axes;
  for (int i = 0; i < x.ndim(); ++i) axes.push_back(i);
  return reduce_sum(x, axes);
}

}  // namespace lathe
