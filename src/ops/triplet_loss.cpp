#include "ops/triplet_loss.h"

#include "ops/elementwise.h"
#include "ops/mse_loss.h"
#include "ops/reduce.h"

namespace lathe {
namespace {

struct PairwiseDistance {
  using Params = PairwiseDistanceParams;
  static constexpr OpInfo info{.name = "pairwise_distance", .doc = "|x - y + eps| over the last axis", .inputs = 2};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    check_same_floats("pairwise_distance", x);
    const Value sum = reduce_sum(square(x[0] - x[1] + p.eps), {-1}), zero = constant_like(sum, 0);
    // The root has no slope at 0; equal vectors have the slope 0.
    const Value apart = less(zero, sum);
    return {select(apart, sqrt(select(apart, sum, constant_like(sum, 1))), zero)};
  }
  static std::vector<Sample> samples() {
    return {{"vectors", {{{DType::f32, {3, 2, 6}}}, {{DType::f32, {3, 2, 6}}}}, make_params(Params{})}};
  }
};

struct TripletLoss {
  using Params = MarginParams;
  static constexpr OpInfo info{
      .name = "triplet_loss", .doc = "max(0, d(anchor, positive) - d(anchor, negative) + margin)", .inputs = 3};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    return {relu(pairwise_distance(x[0], x[1]) - pairwise_distance(x[0], x[2]) + p.margin)};
  }
  static std::vector<Sample> samples() {
    const SampleInput in{{DType::f32, {8, 5}}};
    return {{"triples", {in, in, in}, make_params(Params{0.2})}};
  }
};

struct ContrastiveLoss {
  using Params = MarginParams;
  static constexpr OpInfo info{.name = "contrastive_loss",
                               .doc = "d^2 / 2 of pairs that are the same, else max(0, margin - d)^2 / 2",
                               .inputs = 3};
  static Values expand(Builder&, ArgValues x, const Params& p) {
    const Value d = pairwise_distance(x[0], x[1]);
    LATHE_USER_CHECK(x[2].type() == (TensorType{DType::b8, d.shape()}), "contrastive_loss: expected bool{}, got {}",
                     to_string(d.shape()), to_string(x[2].type()));
    return {square(select(x[2], d, relu(p.margin - d))) * 0.5};
  }
  static std::vector<Sample> samples() {
    return {{"pairs",
             {{{DType::f32, {8, 5}}}, {{DType::f32, {8, 5}}}, {{DType::b8, {8}}, 0, 1}},
             make_params(Params{1.5})}};
  }
};

}  // namespace

constinit const OpDef pairwise_distance_op = make_op<PairwiseDistance>();
constinit const OpDef triplet_loss_op = make_op<TripletLoss>();
constinit const OpDef contrastive_loss_op = make_op<ContrastiveLoss>();

Value pairwise_distance(Value x, Value y, double eps) {
  const Value in[] = {x, y};
  return x.builder().add1(pairwise_distance_op, in, PairwiseDistanceParams{eps});
}
Value triplet_loss(Value anchor, Value positive, Value negative, double margin) {
  const Value in[] = {anchor, positive, negative};
  return anchor.builder().add1(triplet_loss_op, in, MarginParams{margin});
}
Value contrastive_loss(Value x, Value y, Value same, double margin) {
  const Value in[] = {x, y, same};
  return x.builder().add1(contrastive_loss_op, in, MarginParams{margin});
}

}  // namespace lathe
