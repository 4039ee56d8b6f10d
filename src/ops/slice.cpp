#include "ops/slice.h"

#include "base/checked.h"
#include "ops/pad.h"

namespace lathe {
namespace {

struct Slice {
  using Params = SliceParams;
  static constexpr OpInfo info{
      .name = "slice", .doc = "a box of the input, every `steps`-th element", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape& s = x[0].shape;
    const size_t n = static_cast<size_t>(s.ndim());
    LATHE_USER_CHECK(p.starts.size() == n && p.sizes.size() == n && p.steps.size() == n,
                     "slice: {} needs {} starts, sizes and steps, got {}, {} and {}", to_string(s), n, p.starts.size(),
                     p.sizes.size(), p.steps.size());
    for (size_t i = 0; i < n; ++i) {
      const int64_t dim = s[static_cast<int>(i)], start = p.starts[i], size = p.sizes[i], step = p.steps[i];
      LATHE_USER_CHECK(start >= 0 && size >= 0 && step >= 1, "slice: axis {}: start {}, size {}, step {}", i, start,
                       size, step);
      const int64_t last = size == 0 ? start : checked_add(start, checked_mul(size - 1, step, "slice"), "slice");
      LATHE_USER_CHECK(size == 0 ? last <= dim : last < dim, "slice: axis {}: start {}, size {}, step {} exceed {}", i,
                       start, size, step, dim);
    }
    return {{x[0].dtype, Shape(p.sizes)}};
  }

  static Values vjp(const Vjp& v, const Params& p) {
    Ints high, interior;
    for (size_t i = 0; i < p.sizes.size(); ++i) {
      const int64_t covered = p.sizes[i] == 0 ? 0 : (p.sizes[i] - 1) * p.steps[i] + 1;
      high.push_back(v.x[0].shape()[static_cast<int>(i)] - p.starts[i] - covered);
      interior.push_back(p.steps[i] - 1);
    }
    return {pad(v.dy(), p.starts, std::move(high), 0, std::move(interior))};
  }

  static Cost cost(ArgTypes, ArgTypes out, const Params&) { return detail::cost_of_bytes(out, out); }

  static PlacementRows placements(ArgTypes x, ArgTypes y, const Params&) {
    PlacementRows rows{{{kPartial}, {kPartial}}};
    for (int i = 0; i < x[0].shape.ndim(); ++i)  // axes that it leaves whole
      if (x[0].shape[i] == y[0].shape[i]) rows.push_back({{split_along(i)}, {split_along(i)}});
    return rows;
  }
  static Params resized(ArgTypes, ArgTypes y, const Params& p) { return {p.starts, y[0].shape.to_ints(), p.steps}; }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Ints to = y[0].shape().strides(), from = x[0].shape().strides();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < to.size(); ++d) at += (p.starts[d] + i / to[d] % p.sizes[d] * p.steps[d]) * from[d];
      y[0][i] = x[0][at];
    }
  }

  static std::vector<Sample> samples() {
    const auto s = [](const char* label, Shape shape, Ints starts, Ints sizes, Ints steps) {
      return Sample{
          label, {{{DType::f32, shape}}}, make_params(Params{std::move(starts), std::move(sizes), std::move(steps)})};
    };
    return {s("rows", {7, 5}, {2, 0}, {3, 5}, {1, 1}),
            s("columns", {4, 40}, {0, 7}, {4, 21}, {1, 1}),
            s("steps", {9, 11}, {1, 2}, {4, 3}, {2, 4}),
            s("box", {3, 6, 5, 4}, {1, 2, 0, 1}, {2, 3, 5, 2}, {1, 1, 1, 1}),
            s("whole", {3, 4}, {0, 0}, {3, 4}, {1, 1}),
            s("nothing", {3, 4}, {3, 1}, {0, 2}, {1, 1}),
            s("scalar", {}, {}, {}, {}),
            {"i32", {{{DType::i32, {8}}, -9, 9}}, make_params(Params{{3}, {2}, {3}})}};
  }
};

}  // namespace

constinit const OpDef slice_op = make_op<Slice>();

Value slice(Value x, Ints starts, Ints sizes, Ints steps) {
  if (steps.empty()) steps.assign(sizes.size(), 1);
  return x.builder().add1(slice_op, std::span(&x, 1),
                          SliceParams{std::move(starts), std::move(sizes), std::move(steps)});
}

Value slice_axis(Value x, int axis, int64_t start, int64_t size) {
  const size_t at = static_cast<size_t>(normalize_axis(axis, x.ndim(), "slice"));
  Ints starts(static_cast<size_t>(x.ndim()), 0), sizes = x.shape().to_ints();
  starts[at] = start;
  sizes[at] = size;
  return slice(x, std::move(starts), std::move(sizes));
}

}  // namespace lathe
