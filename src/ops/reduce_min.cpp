#include "ops/reduce_min.h"

#include "ops/elementwise.h"

namespace lathe {
namespace {

// Turns the order around without overflow: -x would not do for the smallest i32, nor for any u8.
Value mirrored(Value x) {
  if (is_float(x.dtype())) return -x;
  return (x.dtype() == DType::u8 ? 255.0 : -1.0) - x;
}

struct ReduceMin {
  using Params = ReduceParams;
  static constexpr OpInfo info{
      .name = "reduce_min", .doc = "minimum over axes; NaN if any is", .inputs = 1, .traits = kExact};
  static Types infer(ArgTypes x, const Params& p) { return reduce_max_op.infer(x, &p); }
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {mirrored(reduce_max(mirrored(x[0]), p.axes, p.keep_dims))};
  }
  static std::vector<Sample> samples() {
    return {{"outer", {{{DType::f32, {3, 5, 4}}}}, make_params(Params{{0, 2}, false})},
            {"keep", {{{DType::f32, {3, 4}}}}, make_params(Params{{1}, true})},
            {"i32", {{{DType::i32, {5, 6}}, -9, 9}}, make_params(Params{{1}, false})},
            {"u8", {{{DType::u8, {5, 6}}, 0, 255}}, make_params(Params{{0}, false})}};
  }
};

struct ArgMin {
  using Params = ArgMaxParams;
  static constexpr OpInfo info{.name = "arg_min", .doc = "position of the first minimum along an axis", .inputs = 1};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    LATHE_USER_CHECK(p.axis >= 0 && p.axis < x[0].ndim(), "arg_min: axis {} is out of range for {}", p.axis,
                     to_string(x[0].shape()));
    return {arg_max(mirrored(x[0]), static_cast<int>(p.axis))};
  }
  static std::vector<Sample> samples() {
    return {{"middle", {{{DType::f32, {3, 9, 4}}}}, make_params(Params{1})},
            {"ties", {{{DType::i32, {6, 9}}, 0, 3}}, make_params(Params{1})}};
  }
};

}  // namespace

constinit const OpDef reduce_min_op = make_op<ReduceMin>();
constinit const OpDef arg_min_op = make_op<ArgMin>();

Value reduce_min(Value x, Ints axes, bool keep_dims) {
  return x.builder().add1(reduce_min_op, std::span(&x, 1),
                          ReduceParams{sorted_axes(axes, x.ndim(), "reduce_min"), keep_dims});
}
Value arg_min(Value x, int axis) {
  return x.builder().add1(arg_min_op, std::span(&x, 1), ArgMaxParams{normalize_axis(axis, x.ndim(), "arg_min")});
}

}  // namespace lathe
