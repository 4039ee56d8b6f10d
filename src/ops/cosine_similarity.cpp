#include "ops/cosine_similarity.h"

#include <algorithm>
#include <cmath>

#include "ops/elementwise.h"
#include "ops/mse_loss.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

Value inverse_length(Value x, double eps) {
  const Value squares = reduce_sum(square(x), {-1});
  return rsqrt(maximum(squares, constant_like(x, eps * eps)));
}

struct CosineSimilarity {
  using Params = CosineSimilarityParams;
  static constexpr OpInfo info{.name = "cosine_similarity", .doc = "x y / (|x| |y|) over the last axis", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_same_floats("cosine_similarity", x);
    LATHE_USER_CHECK(p.eps > 0 && std::isfinite(p.eps), "cosine_similarity: eps {} is not positive", p.eps);
    const Value dot = reduce_sum(x[0] * x[1], {-1});
    return {dot * inverse_length(x[0], p.eps) * inverse_length(x[1], p.eps)};
  }
  static void reference(RefOuts y, RefIns x, const Params& p) {
    const int64_t n = x[0].shape().dim(-1);
    for (int64_t i = 0; i < y[0].numel(); ++i) {
      double dot = 0, first = 0, second = 0;
      for (int64_t k = i * n; k < (i + 1) * n; ++k) {
        dot += x[0][k] * x[1][k];
        first += x[0][k] * x[0][k];
        second += x[1][k] * x[1][k];
      }
      y[0][i] = dot / (std::max(std::sqrt(first), p.eps) * std::max(std::sqrt(second), p.eps));
    }
  }
  static std::vector<Sample> samples() {
    return {{"vectors", {{{DType::f32, {3, 2, 6}}}, {{DType::f32, {3, 2, 6}}}}, make_params(Params{})}};
  }
};

struct CosineLoss {
  using Params = CosineLossParams;
  static constexpr OpInfo info{.name = "cosine_loss",
                               .doc = "1 - similarity of pairs that are the same, else what exceeds the margin",
                               .inputs = 3};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value near = cosine_similarity(x[0], x[1]);
    LATHE_USER_CHECK(x[2].type() == (TensorType{DType::b8, near.shape()}), "cosine_loss: expected bool{}, got {}",
                     to_string(near.shape()), to_string(x[2].type()));
    return {select(x[2], 1.0 - near, relu(near - p.margin))};
  }
  static std::vector<Sample> samples() {
    return {{"pairs",
             {{{DType::f32, {8, 5}}}, {{DType::f32, {8, 5}}}, {{DType::b8, {8}}, 0, 1}},
             make_params(Params{0.1})}};
  }
};

}  // namespace

constinit const OpDef cosine_similarity_op = make_op<CosineSimilarity>();
constinit const OpDef cosine_loss_op = make_op<CosineLoss>();

Value cosine_similarity(Value x, Value y, double eps) {
  const Value in[] = {x, y};
  return x.builder().add1(cosine_similarity_op, in, CosineSimilarityParams{eps});
}
Value cosine_loss(Value x, Value y, Value same, double margin) {
  const Value in[] = {x, y, same};
  return x.builder().add1(cosine_loss_op, in, CosineLossParams{margin});
}

}  // namespace lathe
