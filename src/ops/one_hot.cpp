#include "ops/one_hot.h"

#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

struct OneHot {
  using Params = OneHotParams;
  static constexpr OpInfo info{
      .name = "one_hot", .doc = "1 at each index along a new last axis, 0 elsewhere", .inputs = 1};

  static Types infer(ArgTypes x, const Params& p) {
    LATHE_USER_CHECK(x[0].dtype == DType::i32 || x[0].dtype == DType::i64, "one_hot: expected i32 or i64, got {}",
                     to_string(x[0]));
    LATHE_USER_CHECK(p.classes >= 1, "one_hot: {} classes", p.classes);
    Ints out = x[0].shape.to_ints();
    out.push_back(p.classes);
    return {{p.dtype, Shape(out)}};
  }

  static Values expand(Builder& b, ArgValues x, const Params& p) {
    Ints column = x[0].shape().to_ints();
    column.push_back(1);
    const Value classes = iota(b, {x[0].dtype(), {p.classes}}, 0);
    return {cast(equal(classes, reshape(x[0], Shape(column))), p.dtype)};
  }

  static void reference(RefOuts y, RefIns x, const Params& p) {
    for (int64_t i = 0; i < y[0].numel(); ++i)
      y[0][i] = static_cast<int64_t>(x[0][i / p.classes]) == i % p.classes ? 1 : 0;
  }

  static std::vector<Sample> samples() {
    return {{"labels", {{{DType::i32, {6}}, 0, 4}}, make_params(Params{5, DType::f32})},
            {"outside", {{{DType::i64, {2, 6}}, -2, 4}}, make_params(Params{3, DType::i32})}};
  }
};

}  // namespace

constinit const OpDef one_hot_op = make_op<OneHot>();

Value one_hot(Value indices, int64_t classes, DType dtype) {
  return indices.builder().add1(one_hot_op, std::span(&indices, 1), OneHotParams{classes, dtype});
}

}  // namespace lathe
