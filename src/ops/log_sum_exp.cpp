#include "ops/log_sum_exp.h"

#include "ops/elementwise.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

struct LogSumExp {
  using Params = ReduceParams;
  static constexpr OpInfo info{.name = "log_sum_exp", .doc = "log(sum(exp(x))) over axes", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(is_float(x[0].dtype), "log_sum_exp: expected floats, got {}", to_string(x[0]));
    return reduce_max_op.infer(x, &p);
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value most = reduce_max(x[0], p.axes, true);
    const Value top = select(is_finite(most), most, constant_like(most, 0));  // inf - inf would be NaN
    const Value y = top + log(reduce_sum(exp(x[0] - top), p.axes, true));
    return {reshape(y, reduced_shape(x[0].shape(), p))};
  }
  static Values vjp(const Vjp& v, const Params& p) {
    const Shape shape = v.x[0].shape();
    return {spread_reduced(v.dy(), shape, p) * exp(v.x[0] - spread_reduced(v.y[0], shape, p))};
  }
  static std::vector<Sample> samples() {
    return {{"outer", {{{DType::f32, {3, 5, 4}}, -4, 4}}, make_params(Params{{0, 2}, false})},
            {"keep", {{{DType::f32, {3, 4}}, -4, 4}}, make_params(Params{{1}, true})}};
  }
};

}  // namespace

constinit const OpDef log_sum_exp_op = make_op<LogSumExp>();

Value log_sum_exp(Value x, Ints axes, bool keep_dims) {
  return x.builder().add1(log_sum_exp_op, std::span(&x, 1),
                          ReduceParams{sorted_axes(axes, x.ndim(), "log_sum_exp"), keep_dims});
}

}  // namespace lathe
