#include "ops/reduce_prod.h"

#include <algorithm>

#include "ops/broadcast.h"
#include "ops/concat.h"
#include "ops/elementwise.h"
#include "ops/reshape.h"
#include "ops/slice.h"

namespace lathe {
namespace {

// Leaves an axis of size 1.
Value multiply_along(Value x, int axis) {
  if (x.dim(axis) == 0) return broadcast_to(constant_like(x, 1), x.shape().with_dim(axis, 1));
  while (x.dim(axis) > 1) {
    const int64_t n = x.dim(axis), half = n / 2;
    const Value pairs = slice_axis(x, axis, 0, half) * slice_axis(x, axis, half, half);
    if (n % 2 == 0) {
      x = pairs;
    } else {
      const Value both[] = {pairs, slice_axis(x, axis, n - 1, 1)};
      x = concat(both, axis);
    }
  }
  return x;
}

struct ReduceProd {
  using Params = ReduceParams;
  static constexpr OpInfo info{.name = "reduce_prod", .doc = "product over axes", .inputs = 1};

  static Types infer(ArgTypes x, const Params& p) { return reduce_sum_op.infer(x, &p); }

  static Values expand(Builder&, ArgValues x, const Params& p) {
    Value y = x[0];
    for (int64_t a : p.axes) y = multiply_along(y, static_cast<int>(a));
    return {reshape(y, reduced_shape(x[0].shape(), p))};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), 1.0);
    for_each_reduced(x[0].shape(), p, [&](int64_t from, int64_t to) { y[0][to] *= x[0][from]; });
  }

  static std::vector<Sample> samples() {
    return {{"odd", {{{DType::f32, {3, 7}}, -2, 2}}, make_params(Params{{1}, true})},
            {"outer", {{{DType::f32, {4, 3, 2}}, -2, 2}}, make_params(Params{{0, 2}, false})},
            {"nothing", {{{DType::f32, {3, 0}}}}, make_params(Params{{1}, false})}};
  }
};

}  // namespace

constinit const OpDef reduce_prod_op = make_op<ReduceProd>();

Value reduce_prod(Value x, Ints axes, bool keep_dims) {
  return x.builder().add1(reduce_prod_op, std::span(&x, 1),
                          ReduceParams{sorted_axes(axes, x.ndim(), "reduce_prod"), keep_dims});
}

}  // namespace lathe
