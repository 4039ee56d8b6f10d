#include "ops/transpose.h"

#include <algorithm>

namespace lathe {
namespace {

struct Transpose {
  using Params = TransposeParams;
  static constexpr OpInfo info{.name = "transpose", .doc = "permutes axes", .inputs = 1, .traits = kExact};
  static Types infer(ArgTypes x, const Params& p) {
    const Shape& s = x[0].shape;
    Ints sorted = p.perm, shape;
    std::ranges::sort(sorted);
    bool good = static_cast<int>(p.perm.size()) == s.ndim();
    for (size_t i = 0; good && i < sorted.size(); ++i) good = sorted[i] == static_cast<int64_t>(i);
    LATHE_USER_CHECK(good, "transpose: [{}] is not a permutation of the {} axes", fmt::join(p.perm, ", "), s.ndim());
    for (int64_t a : p.perm) shape.push_back(s[static_cast<int>(a)]);
    return {{x[0].dtype, Shape(shape)}};
  }
  static Values vjp(const Vjp& v, const Params& p) { return {transpose(v.dy(), inverse_permutation(p.perm))}; }
  static PlacementRows placements(ArgTypes, ArgTypes, const Params& p) {
    PlacementRows rows{{{kPartial}, {kPartial}}};
    for (size_t i = 0; i < p.perm.size(); ++i)
      rows.push_back({{split_along(static_cast<int>(p.perm[i]))}, {split_along(static_cast<int>(i))}});
    return rows;
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    const Ints from = x[0].shape().strides(), to = y[0].shape().strides();
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      int64_t at = 0;
      for (size_t d = 0; d < to.size(); ++d)
        at += i / to[d] % y[0].shape()[static_cast<int>(d)] * from[static_cast<size_t>(p.perm[d])];
      y[0][i] = x[0][at];
    }
  }
  static std::vector<Sample> samples() {
    return {{"matrix", {{{DType::f32, {37, 21}}}}, make_params(Params{{1, 0}})},
            {"heads", {{{DType::f32, {2, 5, 3, 4}}}}, make_params(Params{{0, 2, 1, 3}})},
            {"channels", {{{DType::f32, {2, 3, 4, 5}}}}, make_params(Params{{0, 3, 1, 2}})},
            {"u8", {{{DType::u8, {3, 5, 2}}, 0, 255}}, make_params(Params{{2, 0, 1}})}};
  }
};

}  // namespace

constinit const OpDef transpose_op = make_op<Transpose>();

Ints inverse_permutation(const Ints& perm) {
  Ints out(perm.size());
  for (size_t i = 0; i < perm.size(); ++i) out[static_cast<size_t>(perm[i])] = static_cast<int64_t>(i);
  return out;
}

Value transpose(Value x, Ints perm) {
  bool identity = static_cast<int>(perm.size()) == x.ndim();
  for (size_t i = 0; identity && i < perm.size(); ++i) identity = perm[i] == static_cast<int64_t>(i);
  if (identity) return x;
  return x.builder().add1(transpose_op, std::span(&x, 1), TransposeParams{std::move(perm)});
}

}  // namespace lathe
