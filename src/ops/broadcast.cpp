#include "ops/broadcast.h"

#include <algorithm>

#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {

Ints broadcast_strides(const Shape& from, const Shape& to) {
  const Ints dense = from.strides();
  Ints out(static_cast<size_t>(to.ndim()), 0);
  const int lead = to.ndim() - from.ndim();
  for (int i = 0; i < from.ndim(); ++i)
    if (from[i] != 1 || to[i + lead] == 1)
      out[static_cast<size_t>(i + lead)] = from[i] == 1 ? 0 : dense[static_cast<size_t>(i)];
  return out;
}

namespace {

struct Broadcast {
  using Params = BroadcastParams;
  static constexpr OpInfo info{
      .name = "broadcast", .doc = "repeats dimensions of size 1, or missing in front", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape to(p.shape);
    const Shape& from = x[0].shape;
    const int lead = to.ndim() - from.ndim();
    bool fits = lead >= 0;
    for (int i = 0; fits && i < from.ndim(); ++i) fits = from[i] == to[i + lead] || from[i] == 1;
    LATHE_USER_CHECK(fits, "broadcast: {} does not fit {}", to_string(from), to_string(to));
    return {{x[0].dtype, to}};
  }

  static Values vjp(const Vjp& v, const Params&) {
    const Shape &from = v.x[0].shape(), &to = v.y[0].shape();
    const int lead = to.ndim() - from.ndim();
    Ints axes;
    for (int i = 0; i < to.ndim(); ++i)
      if (i < lead || (from[i - lead] == 1 && to[i] != 1)) axes.push_back(i);
    return {reshape(reduce_sum(v.dy(), axes), from)};
  }

  static PlacementRows placements(ArgTypes x, ArgTypes y, const Params&) {
    const Shape &from = x[0].shape, &to = y[0].shape;
    const int lead = to.ndim() - from.ndim();
    PlacementRows rows;
    if (from.numel() == to.numel()) rows.push_back({{kPartial}, {kPartial}});  // else it is cheaper to add up before
    for (int i = 0; i < to.ndim(); ++i) {
      const bool repeats = i < lead || from[i - lead] != to[i];
      rows.push_back({{repeats ? kReplicated : split_along(i - lead)}, {split_along(i)}});
    }
    return rows;
  }
  static Params resized(ArgTypes, ArgTypes y, const Params&) { return {y[0].shape.to_ints()}; }

  static void reference(RefOuts y, RefIns x, const Params&) {
    const Ints strides = broadcast_strides(x[0].shape(), y[0].shape()), dense = y[0].shape().strides();
    const Shape& s = y[0].shape();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      int64_t at = 0;
      for (int d = 0; d < s.ndim(); ++d)
        at += i / dense[static_cast<size_t>(d)] % s[d] * strides[static_cast<size_t>(d)];
      y[0][i] = x[0][at];
    }
  }

  static std::vector<Sample> samples() {
    return {{"rows", {{{DType::f32, {5}}}}, make_params(Params{{3, 5}})},
            {"columns", {{{DType::f32, {4, 1}}}}, make_params(Params{{4, 6}})},
            {"scalar", {{{DType::f32, {}}}}, make_params(Params{{2, 3, 4}})},
            {"middle", {{{DType::f32, {2, 1, 3}}}}, make_params(Params{{2, 5, 3}})},
            {"empty", {{{DType::f32, {1, 3}}}}, make_params(Params{{0, 3}})},
            {"i32", {{{DType::i32, {3, 1}}, -5, 5}}, make_params(Params{{3, 4}})}};
  }
};

}  // namespace

constinit const OpDef broadcast_op = make_op<Broadcast>();

Shape broadcast_shape(const Shape& a, const Shape& b) {
  const int n = std::max(a.ndim(), b.ndim());
  Ints out(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) {
    const int ia = i - (n - a.ndim()), ib = i - (n - b.ndim());
    const int64_t da = ia >= 0 ? a[ia] : 1, db = ib >= 0 ? b[ib] : 1;
    LATHE_USER_CHECK(da == db || da == 1 || db == 1, "broadcast: shapes {} and {} do not fit", to_string(a),
                     to_string(b));
    out[static_cast<size_t>(i)] = da == 1 ? db : da;
  }
  return Shape(out);
}

Value broadcast_to(Value x, const Shape& shape) {
  if (x.shape() == shape) return x;
  return x.builder().add1(broadcast_op, std::span(&x, 1), BroadcastParams{shape.to_ints()});
}

}  // namespace lathe
