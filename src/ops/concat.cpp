#include "ops/concat.h"

#include <algorithm>

#include "base/checked.h"
#include "ops/slice.h"

namespace lathe {
namespace {

struct Concat {
  using Params = ConcatParams;
  static constexpr OpInfo info{
      .name = "concat", .doc = "tensors one after another along an axis", .inputs = -1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape& first = x[0].shape;
    LATHE_USER_CHECK(p.axis >= 0 && p.axis < first.ndim(), "concat: axis {} is out of range for {}", p.axis,
                     to_string(first));
    const int axis = static_cast<int>(p.axis);
    int64_t size = 0;
    for (const TensorType& t : x) {
      const bool fits = t.dtype == x[0].dtype && t.shape.ndim() == first.ndim() &&
                        t.shape.with_dim(axis, 0) == first.with_dim(axis, 0);
      LATHE_USER_CHECK(fits, "concat: {} and {} do not fit along axis {}", to_string(x[0]), to_string(t), axis);
      size = checked_add(size, t.shape[axis], "concat");
    }
    return {{x[0].dtype, first.with_dim(axis, size)}};
  }

  static Values vjp(const Vjp& v, const Params& p) {
    const int axis = static_cast<int>(p.axis);
    Values dx;
    int64_t start = 0;
    for (const Value& x : v.x) {
      dx.push_back(slice_axis(v.dy(), axis, start, x.dim(axis)));
      start += x.dim(axis);
    }
    return dx;
  }

  static PlacementRows placements(ArgTypes x, ArgTypes y, const Params& p) {
    PlacementRows rows{{Placements(x.size(), kPartial), {kPartial}}};
    add_split_rows(rows, x.size(), y[0].shape.ndim());
    std::erase_if(rows, [&](const PlacementRow& r) { return r.out[0] == split_along(static_cast<int>(p.axis)); });
    return rows;
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int axis = static_cast<int>(p.axis);
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < y[0].shape().ndim(); ++d)
      if (d != axis) (d < axis ? outer : inner) *= y[0].shape()[d];
    double* to = y[0].data;
    for (int64_t i = 0; i < outer; ++i)
      for (const RefTensor& t : x) {
        const int64_t run = t.shape()[axis] * inner;
        to = std::copy_n(t.data + i * run, run, to);
      }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, DType t, const std::vector<Shape>& shapes, int64_t axis) {
      Sample out{label, {}, make_params(Params{axis})};
      for (const Shape& shape : shapes) out.inputs.push_back({{t, shape}, -5, 5});
      return out;
    };
    return {s("rows", DType::f32, {{3, 4}, {2, 4}}, 0),
            s("columns", DType::f32, {{3, 4}, {3, 1}, {3, 6}}, 1),
            s("channels", DType::f32, {{2, 3, 3, 4}, {2, 3, 3, 5}}, 3),
            s("middle", DType::f32, {{2, 3, 2}, {2, 1, 2}, {2, 4, 2}}, 1),
            s("nothing", DType::f32, {{0, 4}, {2, 4}}, 0),
            s("one", DType::f32, {{5}}, 0),
            s("i32", DType::i32, {{2, 2}, {2, 3}}, 1)};
  }
};

}  // namespace

constinit const OpDef concat_op = make_op<Concat>();

Value concat(ArgValues x, int axis) {
  LATHE_USER_CHECK(!x.empty(), "concat: of nothing");
  const int at = normalize_axis(axis, x[0].ndim(), "concat");
  return x.size() == 1 ? x[0] : x[0].builder().add1(concat_op, x, ConcatParams{at});
}

}  // namespace lathe
