#include "ops/full.h"

#include <algorithm>

namespace lathe {

Value Vjp::dy(int i) const {
  const size_t k = static_cast<size_t>(i);
  return has_dy(i) ? dy_or_none[k] : zeros(b, y[k].type());
}

namespace {

struct Full {
  using Params = FullParams;
  static constexpr OpInfo info{.name = "full", .doc = "one value everywhere", .inputs = 0, .traits = kExact};
  static Types infer(ArgTypes, const Params& p) { return {{p.dtype, Shape(p.shape)}}; }
  static Values vjp(const Vjp&, const Params&) { return {}; }
  static PlacementRows placements(ArgTypes, ArgTypes y, const Params& p) {
    PlacementRows rows;
    add_split_rows(rows, 0, y[0].shape.ndim());
    if (p.value == 0) rows.push_back({{}, {kPartial}});
    return rows;
  }
  static Params resized(ArgTypes, ArgTypes y, const Params& p) { return {p.dtype, y[0].shape.to_ints(), p.value}; }
  static void reference(RefOuts y, RefIns, const Params& p) {
    std::fill_n(y[0].data, y[0].numel(), is_float(p.dtype) ? p.value : round_to(p.dtype, p.value));
  }
  static std::vector<Sample> samples() {
    return {{"f32", {}, make_params(Params{DType::f32, {3, 5}, 0.25})},
            {"scalar", {}, make_params(Params{DType::f32, {}, -1.5})},
            {"i32", {}, make_params(Params{DType::i32, {7}, 3})}};
  }
};

struct Iota {
  using Params = IotaParams;
  static constexpr OpInfo info{.name = "iota", .doc = "the index along `axis`", .inputs = 0, .traits = kExact};
  static Types infer(ArgTypes, const Params& p) {
    const Shape shape(p.shape);
    normalize_axis(p.axis, shape.ndim(), "iota");
    return {{p.dtype, shape}};
  }
  static Values vjp(const Vjp&, const Params&) { return {}; }
  static PlacementRows placements(ArgTypes, ArgTypes y, const Params& p) {
    PlacementRows rows;
    add_split_rows(rows, 0, y[0].shape.ndim());
    const int axis = normalize_axis(p.axis, y[0].shape.ndim(), "iota");
    std::erase_if(rows, [&](const PlacementRow& r) { return r.out[0] == split_along(axis); });
    return rows;
  }
  static Params resized(ArgTypes, ArgTypes y, const Params& p) { return {p.dtype, y[0].shape.to_ints(), p.axis}; }
  static void reference(RefOuts y, RefIns, const Params& p) {
    const Shape& s = y[0].shape();
    const int axis = normalize_axis(p.axis, s.ndim(), "iota");
    const int64_t stride = s.strides()[static_cast<size_t>(axis)];
    for (int64_t i = 0; i < y[0].numel(); ++i) y[0][i] = static_cast<double>(i / stride % s[axis]);
  }
  static std::vector<Sample> samples() {
    return {{"last", {}, make_params(Params{DType::i32, {3, 5}, 1})},
            {"first", {}, make_params(Params{DType::f32, {3, 5}, 0})},
            {"i64", {}, make_params(Params{DType::i64, {2, 4, 3}, 1})}};
  }
};

}  // namespace

constinit const OpDef full_op = make_op<Full>();
constinit const OpDef iota_op = make_op<Iota>();

Value full(Builder& b, const TensorType& t, double value) {
  return b.add1(full_op, {}, FullParams{t.dtype, t.shape.to_ints(), value});
}
Value zeros(Builder& b, const TensorType& t) { return full(b, t, 0); }
Value iota(Builder& b, const TensorType& t, int axis) {
  return b.add1(iota_op, {}, IotaParams{t.dtype, t.shape.to_ints(), axis});
}

}  // namespace lathe
