#include "nn/step/loss.h"

#include <algorithm>

#include "base/error.h"
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

// Which rows are of one class, and how far apart they lie on the unit sphere: [rows, rows].
struct Pairs {
  Value same, other, squares, distances;
};

constexpr double kFarther = 8;  // than any two points of the sphere, margin included

Pairs pairs_of(Value y, Value labels) {
  Builder& b = y.builder();
  const int64_t n = y.dim(0);
  const Value at = l2_normalize(y);
  // Not 0, where the root has no slope.
  const Value squares = maximum(2.0 - matmul(at, at, false, true) * 2.0, full(b, {DType::f32, {n, n}}, 1e-12));
  const Value alike = equal(reshape(labels, {n, 1}), reshape(labels, {1, n}));
  const Value self = equal(iota(b, {DType::i32, {n, n}}, 0), iota(b, {DType::i32, {n, n}}, 1));
  return {logical_and(alike, logical_not(self)), logical_not(alike), squares, sqrt(squares)};
}

// Label smoothing goes with all losses of classes.
struct SmoothedParams {
  double label_smoothing = 0;
  template <class F>
  static void fields(F&& f) {
    f("label_smoothing", &SmoothedParams::label_smoothing, allow::below(0, 1),
      "part of the target spread over all classes");
  }
};

// Probabilities of the classes as the target gives them, label smoothing included.
Value soft_labels(double smoothing, Value y, Value labels) {
  const int64_t classes = y.dim(1);
  return one_hot(labels, classes) * (1 - smoothing) + smoothing / static_cast<double>(classes);
}

struct CrossEntropy {
  struct Params : SmoothedParams {};
  static constexpr LossInfo info{"cross_entropy", "log of the probability of the true class", kOfClasses, true};
  static Value build(const Params& p, Value y, Value labels) { return cross_entropy(y, labels, p.label_smoothing); }
};

// (1 - p)^focal_gamma times the cross entropy, p the probability of the true class.
struct Focal {
  struct Params : SmoothedParams {
    double focal_gamma = 2;
    template <class F>
    static void fields(F&& f) {
      f("focal_gamma", &Params::focal_gamma, allow::range(0, 100), "how much less a sample counts that is known well");
      SmoothedParams::fields(f);
    }
  };
  static constexpr LossInfo info{"focal", "cross entropy, less of what is known well", kOfClasses};
  static Value build(const Params& p, Value y, Value labels) {
    const Value entropy = cross_entropy(y, labels, p.label_smoothing);
    // Not 0, where powers below 1 have no slope.
    const Value missing = maximum(1.0 - exp(-entropy), constant_like(entropy, 1e-6));
    return pow(missing, constant_like(entropy, p.focal_gamma)) * entropy;
  }
};

// The mean over classes.
struct Bce {
  struct Params : SmoothedParams {};
  static constexpr LossInfo info{
      "bce", "binary cross entropy, each class a question of its own", kOfClasses, false, true, true};
  static Value build(const Params& p, Value y, Value labels) {
    return reduce_mean(bce_loss(y, soft_labels(p.label_smoothing, y, labels)), {1});
  }
};

struct Kl {
  struct Params : SmoothedParams {};
  static constexpr LossInfo info{"kl", "divergence of the probabilities from the smoothed labels", kOfClasses};
  static Value build(const Params& p, Value y, Value labels) {
    return reduce_sum(kl_loss(log_softmax(y), soft_labels(p.label_smoothing, y, labels)), {1});
  }
};

struct EmbeddingParams {
  double margin = 0.5;
  int64_t embedding = 64;
  template <class F>
  static void fields(F&& f) {
    f("margin", &EmbeddingParams::margin, allow::above(0, 2),
      "by which samples of other classes shall be farther; triplet: than those of the class, contrastive: than "
      "nothing");
    f("embedding", &EmbeddingParams::embedding, allow::range(1, 1 << 20), "numbers of an embedding");
  }
};

// All triplets of a row, another of its class and one of another class: the mean. Taking the
// hardest alone pulls all places together before it learns anything. Rows are taken some at a time, so that evaluation,
// which keeps nothing, can have large batches.
struct Triplet {
  struct Params : EmbeddingParams {};
  static constexpr LossInfo info{"triplet", "distance to one of the class less that to another, plus the margin",
                                 kOfEmbeddings, false, true};
  static Value build(const Params& p, Value y, Value labels) {
    constexpr int64_t kTriplets = 1 << 22, kMostParts = 64;
    const Pairs pairs = pairs_of(y, labels);
    const int64_t n = y.dim(0), rows = std::max({int64_t{1}, kTriplets / (n * n), (n + kMostParts - 1) / kMostParts});
    const Value same = cast(pairs.same, DType::f32), other = cast(pairs.other, DType::f32);
    Values parts;
    for (int64_t from = 0; from < n; from += rows) {
      const int64_t some = std::min(rows, n - from);
      const auto positive = [&](Value v) { return reshape(slice_axis(v, 0, from, some), {some, n, 1}); };
      const auto negative = [&](Value v) { return reshape(slice_axis(v, 0, from, some), {some, 1, n}); };
      const Value counted = positive(same) * negative(other);
      const Value losses = relu(positive(pairs.distances) - negative(pairs.distances) + p.margin) * counted;
      const Value number = reduce_sum(counted, {1, 2});
      parts.push_back(reduce_sum(losses, {1, 2}) / maximum(number, constant_like(number, 1.0)));
    }
    return concat(parts, 0);
  }
  static int64_t outputs(const Params& p) { return p.embedding; }
};

// The mean over all pairs of a row.
struct Contrastive {
  struct Params : EmbeddingParams {};
  static constexpr LossInfo info{"contrastive",
                                 "squares of distances within classes, and of what others lack to the margin",
                                 kOfEmbeddings, false, true};
  static Value build(const Params& p, Value y, Value labels) {
    const Pairs pairs = pairs_of(y, labels);
    const Value none = constant_like(pairs.squares, 0.0);
    const Value apart = square(relu(p.margin - pairs.distances));
    const Value sum = select(pairs.same, pairs.squares, none) + select(pairs.other, apart, none);
    return reduce_sum(sum, {1}) * (0.5 / static_cast<double>(std::max<int64_t>(1, y.dim(0) - 1)));
  }
  static int64_t outputs(const Params& p) { return p.embedding; }
};

struct Mse {
  using Params = NoFields;
  static constexpr LossInfo info{"mse", "square of the distance", kOfNumbers, true};
  static Value build(const Params&, Value y, Value labels) { return mse_loss(y, labels); }
};

struct L1 {
  using Params = NoFields;
  static constexpr LossInfo info{"l1", "the distance", kOfNumbers};
  static Value build(const Params&, Value y, Value labels) { return l1_loss(y, labels); }
};

struct Huber {
  struct Params {
    double huber_delta = 1;
    template <class F>
    static void fields(F&& f) {
      f("huber_delta", &Params::huber_delta, allow::above(0, 1e6), "distance from which on the loss is a line");
    }
  };
  static constexpr LossInfo info{"huber", "half the square up to huber_delta, a line beyond it", kOfNumbers};
  static Value build(const Params& p, Value y, Value labels) { return huber_loss(y, labels, p.huber_delta); }
};

// A row's loss counts for each of its numbers.
struct Cosine {
  using Params = NoFields;
  static constexpr LossInfo info{"cosine", "of several numbers: 1 less the cosine of the angle to the true ones",
                                 kOfVectors, false, true};
  static Value build(const Params&, Value y, Value labels) {
    LATHE_USER_CHECK(y.dim(1) > 1, "train.loss: expected at least 2 numbers per sample for \"cosine\", got 1");
    return (1.0 - cosine_similarity(y, labels)) * static_cast<double>(y.dim(1));
  }
};

template <class T>
constexpr LossRule make_loss() {
  using P = typename T::Params;
  LossRule rule{.info = T::info, .schema = schema_of<P>};
  rule.build = [](const ParamSet& p, Value y, Value labels) { return T::build(p.as<P>(), y, labels); };
  if constexpr (requires { &T::outputs; }) rule.outputs = [](const ParamSet& p) { return T::outputs(p.as<P>()); };
  return rule;
}

constexpr LossRule kLossRules[] = {
    make_loss<CrossEntropy>(), make_loss<Focal>(), make_loss<Bce>(), make_loss<Kl>(),    make_loss<Triplet>(),
    make_loss<Contrastive>(),  make_loss<Mse>(),   make_loss<L1>(),  make_loss<Huber>(), make_loss<Cosine>(),
};

struct AutoParams : SmoothedParams {};
constexpr LossRule kAutoLoss{.info = {"auto", "the family's own, else cross_entropy or mse", {}},
                             .schema = schema_of<AutoParams>};

}  // namespace

LossSpec::LossSpec(std::string_view loss, const NamedValues& values) : name(loss) {
  const LossRule* rule = find_loss(loss);
  LATHE_USER_CHECK(rule, "train.loss: no loss is called \"{}\"", loss);
  params = ParamSet(rule->schema(), values);
}

std::span<const LossRule> loss_rules() { return kLossRules; }
const LossRule& auto_loss() { return kAutoLoss; }

const LossRule* find_loss(std::string_view name) {
  if (name == kAutoLoss.name()) return &kAutoLoss;
  const auto* found = std::ranges::find(kLossRules, name, &LossRule::name);
  return found == std::end(kLossRules) ? nullptr : found;
}

const LossRule& plain_loss(Task task) {
  for (const LossRule& rule : kLossRules)
    if (rule.info.plain && std::ranges::find(rule.info.tasks, task) != rule.info.tasks.end()) return rule;
  return *find_loss(Mse::info.name);
}

bool is_auto(const LossSpec& loss) { return loss.name == kAutoLoss.name(); }

const LossRule& loss_of(const LossSpec& loss, Task task) {
  const LossRule* rule = is_auto(loss) ? &plain_loss(task) : find_loss(loss.name);
  LATHE_USER_CHECK(rule, "train.loss: no loss is called \"{}\"", loss.name);
  return *rule;
}

bool learns_embedding(const LossSpec& loss) {
  const LossRule* rule = find_loss(loss.name);
  return rule && rule->outputs;
}

Value losses_of(const StepConfig& c, Value y, Value labels) {
  const LossRule& rule = loss_of(c.loss, c.task);
  if (!is_auto(c.loss)) return rule.build(c.loss.params, y, labels);
  ParamSet params(rule.schema());
  for (const Field& f : params.schema().fields) copy_value(c.loss.params, f.name, params);
  return rule.build(params, y, labels);
}

bool evaluates_plain_loss(const StepConfig& c) {
  const bool own = is_auto(c.loss) && find_family(c.model.family).loss;
  return !own && !loss_of(c.loss, c.task).info.measures;
}

LossSpec evaluation_loss(const StepConfig& c) {
  if (evaluates_plain_loss(c)) return LossSpec(plain_loss(c.task).name());
  LossSpec out = c.loss;
  if (const Field* smoothing = out.params.schema().find("label_smoothing")) out.params.reset(*smoothing);
  return out;
}

Value nearest_hits(Value y, Value labels) {
  const Pairs p = pairs_of(y, labels);
  const Value far = constant_like(p.squares, kFarther);
  const Value same = reduce_min(select(p.same, p.squares, far), {1});
  const Value other = reduce_min(select(p.other, p.squares, far), {1});
  return cast(less(same, other), DType::f32);
}

}  // namespace lathe
