#include "ops/reshape.h"

#include <algorithm>

namespace lathe {
namespace {

struct Reshape {
  using Params = ReshapeParams;
  static constexpr OpInfo info{
      .name = "reshape", .doc = "another shape for the same elements", .inputs = 1, .traits = kView};
  static Types infer(ArgTypes x, const Params& p) {
    const Shape to(p.shape);
    LATHE_USER_CHECK(to.numel() == x[0].numel(), "reshape: {} has {} elements, {} has {}", to_string(x[0].shape),
                     x[0].numel(), to_string(to), to.numel());
    return {{x[0].dtype, to}};
  }
  static Values vjp(const Vjp& v, const Params&) { return {reshape(v.dy(), v.x[0].shape())}; }
  static Cost cost(ArgTypes, ArgTypes, const Params&) { return {}; }
  // A part of one axis is a part of another where as many elements lie in front of one step along it: those of the axes
  // before it, and of the axis itself, in whole samples.
  static PlacementRows placements(ArgTypes x, ArgTypes y, const Params&) {
    const Shape &from = x[0].shape, &to = y[0].shape;
    PlacementRows rows{{{kPartial}, {kPartial}}};
    int64_t before = 1;
    for (int i = 0; i < from.ndim(); before *= from[i++]) {
      int64_t also = 1;
      for (int k = 0; k < to.ndim(); also *= to[k++])
        if (before == also) rows.push_back({{split_along(i)}, {split_along(k)}});
    }
    return rows;
  }
  static Params resized(ArgTypes, ArgTypes y, const Params&) { return {y[0].shape.to_ints()}; }
  static void reference(RefOuts y, RefIns x, const Params&) { std::copy_n(x[0].data, x[0].numel(), y[0].data); }
  static std::vector<Sample> samples() {
    return {{"flatten", {{{DType::f32, {3, 4, 5}}}}, make_params(Params{{3, 20}})},
            {"scalar", {{{DType::f32, {1, 1}}}}, make_params(Params{{}})},
            {"i32", {{{DType::i32, {6}}, -5, 5}}, make_params(Params{{2, 3}})}};
  }
};

}  // namespace

constinit const OpDef reshape_op = make_op<Reshape>();

Value reshape(Value x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return x.builder().add1(reshape_op, std::span(&x, 1), ReshapeParams{shape.to_ints()});
}

}  // namespace lathe
