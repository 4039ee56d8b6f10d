#include "ops/variance.h"

#include "ops/elementwise.h"

namespace lathe {
namespace {

// The number of elements that are averaged; the axes are checked on the way.
int64_t averaged(const char* op, const TensorType& x, const Ints& axes) {
  LATHE_USER_CHECK(is_float(x.dtype), "{}: expected floats, got {}", op, to_string(x));
  int64_t count = 1;
  for (int64_t a : axes) {
    LATHE_USER_CHECK(a >= 0 && a < x.shape.ndim(), "{}: axis {} is out of range for {}", op, a, to_string(x.shape));
    count *= x.shape[static_cast<int>(a)];
  }
  return count;
}

struct ReduceMean {
  using Params = ReduceParams;
  static constexpr OpInfo info{.name = "reduce_mean", .doc = "mean over axes", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    const Types out = reduce_sum_op.infer(x, &p);
    averaged("reduce_mean", x[0], p.axes);
    return out;
  }
  static Values expand(Builder&, ArgValues x, const Params& p) { return {reduce_mean(x[0], p.axes, p.keep_dims)}; }
  static std::vector<Sample> samples() {
    return {{"outer", {{{DType::f32, {3, 5, 4}}}}, make_params(Params{{0, 2}, false})},
            {"keep", {{{DType::f32, {3, 4}}}}, make_params(Params{{1}, true})}};
  }
};

struct Variance {
  using Params = VarianceParams;
  static constexpr OpInfo info{.name = "variance", .doc = "mean squared distance from the mean over axes", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) {
    const ReduceParams r{p.axes, p.keep_dims};
    const Types out = reduce_sum_op.infer(x, &r);
    const int64_t count = averaged("variance", x[0], p.axes);
    LATHE_USER_CHECK(p.correction >= 0 && p.correction < count, "variance: correction {} of {} elements", p.correction,
                     count);
    return out;
  }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const double count = static_cast<double>(averaged("variance", x[0].type(), p.axes));
    const Value squares = square(x[0] - reduce_mean(x[0], p.axes, true));
    return {reduce_sum(squares, p.axes, p.keep_dims) * (1.0 / (count - static_cast<double>(p.correction)))};
  }
  static std::vector<Sample> samples() {
    return {{"outer", {{{DType::f32, {3, 5, 4}}}}, make_params(Params{{0, 2}, false, 1})},
            {"keep", {{{DType::f32, {3, 4}}}}, make_params(Params{{1}, true, 0})}};
  }
};

}  // namespace

constinit const OpDef reduce_mean_op = make_op<ReduceMean>();
constinit const OpDef variance_op = make_op<Variance>();

Value variance(Value x, Ints axes, bool keep_dims, int64_t correction) {
  return x.builder().add1(variance_op, std::span(&x, 1),
                          VarianceParams{sorted_axes(axes, x.ndim(), "variance"), keep_dims, correction});
}

}  // namespace lathe
