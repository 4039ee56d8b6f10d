#include "ops/split.h"

#include "ops/concat.h"
#include "ops/slice.h"

namespace lathe {
namespace {

struct Split {
  using Params = SplitParams;
  static constexpr OpInfo info{
      .name = "split", .doc = "pieces along an axis, one output each", .inputs = 1, .traits = kExact};

  static Types infer(ArgTypes x, const Params& p) {
    const Shape& s = x[0].shape;
    LATHE_USER_CHECK(p.axis >= 0 && p.axis < s.ndim(), "split: axis {} is out of range for {}", p.axis, to_string(s));
    int64_t left = s[static_cast<int>(p.axis)];
    Types out;
    for (int64_t size : p.sizes) {
      LATHE_USER_CHECK(size >= 0 && size <= left, "split: a piece of {} where {} are left of {}", size, left,
                       s[static_cast<int>(p.axis)]);
      left -= size;
      out.push_back({x[0].dtype, s.with_dim(static_cast<int>(p.axis), size)});
    }
    LATHE_USER_CHECK(left == 0 && !out.empty(), "split: {} pieces leave {} of {}", p.sizes.size(), left,
                     s[static_cast<int>(p.axis)]);
    return out;
  }

  static Values expand(Builder&, ArgValues x, const Params& p) {
    Values out;
    int64_t at = 0;
    for (int64_t size : p.sizes) {
      out.push_back(slice_axis(x[0], static_cast<int>(p.axis), at, size));
      at += size;
    }
    return out;
  }

  static Values vjp(const Vjp& v, const Params& p) {
    Values d;
    for (size_t i = 0; i < v.y.size(); ++i) d.push_back(v.dy(static_cast<int>(i)));
    return {concat(d, static_cast<int>(p.axis))};
  }

  static std::vector<Sample> samples() {
    return {{"columns", {{{DType::f32, {3, 6}}}}, make_params(Params{1, {2, 3, 1}})},
            {"middle", {{{DType::f32, {2, 4, 3}}}}, make_params(Params{1, {4, 0}})}};
  }
};

}  // namespace

constinit const OpDef split_op = make_op<Split>();

Values split(Value x, int axis, Ints sizes) {
  return x.builder().add(split_op, std::span(&x, 1),
                         make_params(SplitParams{normalize_axis(axis, x.ndim(), "split"), std::move(sizes)}));
}

Values split(Value x, int axis, int64_t pieces) {
  LATHE_USER_CHECK(pieces >= 1 && x.dim(axis) % pieces == 0, "split: {} pieces of {}", pieces, x.dim(axis));
  return split(x, axis, Ints(static_cast<size_t>(pieces), x.dim(axis) / pieces));
}

}  // namespace lathe
