#include "ops/cast.h"

namespace lathe {
namespace {

struct Cast {
  using Params = CastParams;
  static constexpr OpInfo info{.name = "cast", .doc = "elements as another type", .inputs = 1, .traits = kElementwise};
  static Types infer(ArgTypes x, const Params& p) { return {{p.dtype, x[0].shape}}; }
  static Values vjp(const Vjp& v, const Params&) {
    const bool flows = is_float(v.x[0].dtype()) && is_float(v.y[0].dtype());
    return {flows ? cast(v.dy(), v.x[0].dtype()) : Value()};
  }
  static PlacementRows placements(ArgTypes x, ArgTypes, const Params& p) {
    PlacementRows rows;
    add_split_rows(rows, 1, x[0].shape.ndim());
    // Sums are rounded once, when they are whole.
    if (is_float(x[0].dtype) && is_float(p.dtype) && size_of(p.dtype) >= size_of(x[0].dtype))
      rows.push_back({{kPartial}, {kPartial}});
    return rows;
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    for (int64_t i = 0; i < y[0].numel(); ++i) y[0][i] = is_float(p.dtype) ? x[0][i] : round_to(p.dtype, x[0][i]);
  }
  static std::vector<Sample> samples() {
    std::vector<Sample> out;
    for (DType to : {DType::f32, DType::i32, DType::i64, DType::u8, DType::b8, DType::f16, DType::bf16})
      out.push_back({"f32", {{{DType::f32, {3, 5}}, 0, 200}}, make_params(Params{to})});
    out.push_back({"u8", {{{DType::u8, {4, 6}}, 0, 255}}, make_params(Params{DType::f32})});
    out.push_back({"i32", {{{DType::i32, {4, 6}}, -9, 9}}, make_params(Params{DType::f32})});
    for (DType from : {DType::f16, DType::bf16})
      for (DType to : {DType::f32, DType::i32, DType::b8, DType::f16, DType::bf16})
        out.push_back({std::string(to_string(from)), {{{from, {3, 5}}, -9, 200}}, make_params(Params{to})});
    out.push_back({"bool", {{{DType::b8, {4, 6}}, 0, 1}}, make_params(Params{DType::f32})});
    return out;
  }
};

}  // namespace

constinit const OpDef cast_op = make_op<Cast>();

Value cast(Value x, DType dtype) {
  if (x.dtype() == dtype) return x;
  return x.builder().add1(cast_op, std::span(&x, 1), CastParams{dtype});
}

}  // namespace lathe
