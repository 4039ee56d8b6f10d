#include "ops/reduce_any.h"

#include "ops/cast.h"
#include "ops/elementwise.h"

namespace lathe {
namespace {

Types infer_bools(const char* op, ArgTypes x, const ReduceParams& p) {
  LATHE_USER_CHECK(x[0].dtype == DType::b8, "{}: expected bool, got {}", op, to_string(x[0]));
  const TensorType numbers{DType::i32, x[0].shape};
  return {{DType::b8, reduce_max_op.infer({&numbers, 1}, &p)[0].shape}};
}

Value any_of(Value x, const ReduceParams& p, bool negate) {
  const Value seen = cast(reduce_max(cast(negate ? logical_not(x) : x, DType::i32), p.axes, p.keep_dims), DType::b8);
  return negate ? logical_not(seen) : seen;
}

std::vector<Sample> bool_samples() {
  return {{"rows", {{{DType::b8, {12, 3}}, 0, 1}}, make_params(ReduceParams{{1}, false})},
          {"all", {{{DType::b8, {2, 3}}, 0, 1}}, make_params(ReduceParams{{0, 1}, true})}};
}

struct ReduceAny {
  using Params = ReduceParams;
  static constexpr OpInfo info{.name = "reduce_any", .doc = "whether a bool along the axes is true", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) { return infer_bools("reduce_any", x, p); }
  static Values expand(Builder&, ArgValues x, const Params& p) { return {any_of(x[0], p, false)}; }
  static std::vector<Sample> samples() { return bool_samples(); }
};

struct ReduceAll {
  using Params = ReduceParams;
  static constexpr OpInfo info{.name = "reduce_all", .doc = "whether every bool along the axes is true", .inputs = 1};
  static Types infer(ArgTypes x, const Params& p) { return infer_bools("reduce_all", x, p); }
  static Values expand(Builder&, ArgValues x, const Params& p) { return {any_of(x[0], p, true)}; }
  static std::vector<Sample> samples() { return bool_samples(); }
};

}  // namespace

constinit const OpDef reduce_any_op = make_op<ReduceAny>();
constinit const OpDef reduce_all_op = make_op<ReduceAll>();

Value reduce_any(Value x, Ints axes, bool keep_dims) {
  return x.builder().add1(reduce_any_op, std::span(&x, 1),
                          ReduceParams{sorted_axes(axes, x.ndim(), "reduce_any"), keep_dims});
}
Value reduce_all(Value x, Ints axes, bool keep_dims) {
  return x.builder().add1(reduce_all_op, std::span(&x, 1),
                          ReduceParams{sorted_axes(axes, x.ndim(), "reduce_all"), keep_dims});
}

}  // namespace lathe
