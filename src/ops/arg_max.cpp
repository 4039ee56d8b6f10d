#include "ops/arg_max.h"

#include <cmath>
#include <limits>

namespace lathe {
namespace {

struct ArgMax {
  using Params = ArgMaxParams;
  static constexpr OpInfo info{
      .name = "arg_max", .doc = "position of the first maximum along an axis", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape& s = x[0].shape;
    LATHE_USER_CHECK(x[0].dtype != DType::b8, "arg_max: bool is not a number; cast it");
    LATHE_USER_CHECK(p.axis >= 0 && p.axis < s.ndim(), "arg_max: axis {} is out of range for {}", p.axis, to_string(s));
    const int64_t n = s[static_cast<int>(p.axis)];
    LATHE_USER_CHECK(n >= 1 && n <= std::numeric_limits<int32_t>::max(), "arg_max: axis {} of {} has {} elements",
                     p.axis, to_string(s), n);
    Ints out = s.to_ints();
    out.erase(out.begin() + static_cast<std::ptrdiff_t>(p.axis));
    return {{DType::i32, Shape(out)}};
  }

  static Cost cost(ArgTypes in, ArgTypes out, const Params&) {
    Cost c = detail::cost_of_bytes(in, out);
    c.flops = static_cast<double>(in[0].numel());
    return c;
  }

  static PlacementRows placements(ArgTypes x, ArgTypes, const Params& p) {
    const int axis = static_cast<int>(p.axis);
    PlacementRows rows;
    for (int i = 0; i < x[0].shape.ndim(); ++i)
      if (i != axis) rows.push_back({{split_along(i)}, {split_along(i < axis ? i : i - 1)}});
    return rows;
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Shape& s = x[0].shape();
    const int64_t n = s[static_cast<int>(p.axis)], inner = s.strides()[static_cast<size_t>(p.axis)];
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      const double* row = x[0].data + i / inner * n * inner + i % inner;
      int64_t best = 0;
      for (int64_t k = 1; k < n; ++k)
        if (row[k * inner] > row[best * inner] || (std::isnan(row[k * inner]) && !std::isnan(row[best * inner])))
          best = k;
      y[0][i] = static_cast<double>(best);
    }
  }

  static std::vector<Sample> samples() {
    return {{"classes", {{{DType::f32, {6, 10}}}}, make_params(Params{1})},
            {"first", {{{DType::f32, {7, 5}}}}, make_params(Params{0})},
            {"middle", {{{DType::f32, {3, 9, 4}}}}, make_params(Params{1})},
            {"vector", {{{DType::f32, {70}}}}, make_params(Params{0})},
            {"no_rows", {{{DType::f32, {0, 4}}}}, make_params(Params{1})},
            {"ties", {{{DType::i32, {12, 9}}, 0, 3}}, make_params(Params{1})}};
  }
};

}  // namespace

constinit const OpDef arg_max_op = make_op<ArgMax>();

Value arg_max(Value x, int axis) {
  return x.builder().add1(arg_max_op, std::span(&x, 1), ArgMaxParams{normalize_axis(axis, x.ndim(), "arg_max")});
}

}  // namespace lathe
