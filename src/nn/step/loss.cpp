#include "nn/step/loss.h"

#include <algorithm>

#include "ops/bce_loss.h"
#include "ops/cast.h"
#include "ops/concat.h"
#include "ops/cosine_similarity.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/group_norm.h"
#include "ops/kl_loss.h"
#include "ops/matmul.h"
#include "ops/mse_loss.h"
#include "ops/one_hot.h"
#include "ops/reduce.h"
#include "ops/reduce_min.h"
#include "ops/reshape.h"
#include "ops/slice.h"
#include "ops/softmax.h"

namespace lathe {
namespace {

constexpr Task kOfClasses[] = {Task::classify, Task::segment};
constexpr Task kOfNumbers[] = {Task::regress, Task::restore};
constexpr Task kOfVectors[] = {Task::regress};
constexpr Task kOfEmbeddings[] = {Task::embed};

constexpr LossRule kLossRules[] = {
    {"cross_entropy", Loss::plain, kOfClasses},
    {"focal", Loss::focal, kOfClasses},
    {"bce", Loss::bce, kOfClasses, true},
    {"kl", Loss::kl, kOfClasses},
    {"triplet", Loss::triplet, kOfEmbeddings, true},
    {"contrastive", Loss::contrastive, kOfEmbeddings, true},
    {"mse", Loss::plain, kOfNumbers},
    {"l1", Loss::l1, kOfNumbers},
    {"huber", Loss::huber, kOfNumbers},
    {"cosine", Loss::cosine, kOfVectors, true},
};

// Probabilities of the classes as the target gives them, label smoothing included.
Value soft_labels(const StepConfig& c, Value y, Value target) {
  const int64_t classes = y.dim(1);
  return one_hot(target, classes) * (1 - c.label_smoothing) + c.label_smoothing / static_cast<double>(classes);
}

// Which rows are of one class, and how far apart they lie on the unit sphere: [rows, rows].
struct Pairs {
  Value same, other, squares, distances;
};

constexpr double kFarther = 8;  // than any two points of the sphere, margin included

Pairs pairs_of(Value y, Value target) {
  Builder& b = y.builder();
  const int64_t n = y.dim(0);
  const Value at = l2_normalize(y);
  // Not 0, where the root has no slope.
  const Value squares = maximum(2.0 - matmul(at, at, false, true) * 2.0, full(b, {DType::f32, {n, n}}, 1e-12));
  const Value alike = equal(reshape(target, {n, 1}), reshape(target, {1, n}));
  const Value self = equal(iota(b, {DType::i32, {n, n}}, 0), iota(b, {DType::i32, {n, n}}, 1));
  return {logical_and(alike, logical_not(self)), logical_not(alike), squares, sqrt(squares)};
}

// All triplets of a row, another of its class and one of another class: the mean. Taking the
// hardest alone pulls all places together before it learns anything. Rows are taken some at a time, so that evaluation,
// which keeps nothing, can have large batches.
Value triplet_losses(const StepConfig& c, Value y, Value target) {
  constexpr int64_t kTriplets = 1 << 22, kMostParts = 64;
  const Pairs p = pairs_of(y, target);
  const int64_t n = y.dim(0), rows = std::max({int64_t{1}, kTriplets / (n * n), (n + kMostParts - 1) / kMostParts});
  const Value same = cast(p.same, DType::f32), other = cast(p.other, DType::f32);
  Values parts;
  for (int64_t from = 0; from < n; from += rows) {
    const int64_t some = std::min(rows, n - from);
    const auto positive = [&](Value v) { return reshape(slice_axis(v, 0, from, some), {some, n, 1}); };
    const auto negative = [&](Value v) { return reshape(slice_axis(v, 0, from, some), {some, 1, n}); };
    const Value counted = positive(same) * negative(other);
    const Value losses = relu(positive(p.distances) - negative(p.distances) + c.margin) * counted;
    const Value number = reduce_sum(counted, {1, 2});
    parts.push_back(reduce_sum(losses, {1, 2}) / maximum(number, constant_like(number, 1.0)));
  }
  return concat(parts, 0);
}

// The mean over all pairs of a row.
Value contrastive_losses(const StepConfig& c, Value y, Value target) {
  const Pairs p = pairs_of(y, target);
  const Value none = constant_like(p.squares, 0.0);
  const Value apart = square(relu(c.margin - p.distances));
  const Value sum = select(p.same, p.squares, none) + select(p.other, apart, none);
  return reduce_sum(sum, {1}) * (0.5 / static_cast<double>(std::max<int64_t>(1, y.dim(0) - 1)));
}

Value focal_losses(const StepConfig& c, Value y, Value target) {
  const Value entropy = cross_entropy(y, target, c.label_smoothing);
  // Not 0, where powers below 1 have no slope.
  const Value missing = maximum(1.0 - exp(-entropy), constant_like(entropy, 1e-6));
  return pow(missing, constant_like(entropy, c.focal_gamma)) * entropy;
}

// A row's loss counts for each of its numbers.
Value cosine_losses(Value y, Value target) {
  LATHE_USER_CHECK(y.dim(1) > 1, "train.loss: expected at least 2 numbers per sample for \"cosine\", got 1");
  return (1.0 - cosine_similarity(y, target)) * static_cast<double>(y.dim(1));
}

}  // namespace

std::span<const LossRule> loss_rules() { return kLossRules; }

const LossRule* find_loss(std::string_view name) {
  const auto* found = std::ranges::find(kLossRules, name, &LossRule::name);
  return found == std::end(kLossRules) ? nullptr : found;
}

bool learns_embedding(std::string_view loss) {
  const LossRule* rule = find_loss(loss);
  return rule && rule->tasks[0] == Task::embed;
}

Value losses_of(const StepConfig& c, Value y, Value target) {
  switch (c.loss) {
    case Loss::focal: return focal_losses(c, y, target);
    case Loss::bce: return reduce_mean(bce_loss(y, soft_labels(c, y, target)), {1});
    case Loss::kl: return reduce_sum(kl_loss(log_softmax(y), soft_labels(c, y, target)), {1});
    case Loss::triplet: return triplet_losses(c, y, target);
    case Loss::contrastive: return contrastive_losses(c, y, target);
    case Loss::l1: return l1_loss(y, target);
    case Loss::huber: return huber_loss(y, target, c.huber_delta);
    case Loss::cosine: return cosine_losses(y, target);
    case Loss::own:
    case Loss::plain: break;
  }
  const bool classes = c.task == Task::classify || c.task == Task::segment;
  return classes ? cross_entropy(y, target, c.label_smoothing) : mse_loss(y, target);
}

Value nearest_hits(Value y, Value target) {
  const Pairs p = pairs_of(y, target);
  const Value far = constant_like(p.squares, kFarther);
  const Value same = reduce_min(select(p.same, p.squares, far), {1});
  const Value other = reduce_min(select(p.other, p.squares, far), {1});
  return cast(less(same, other), DType::f32);
}

}  // namespace lathe
