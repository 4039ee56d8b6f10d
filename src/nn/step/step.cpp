#include "nn/step/step.h"

#include <algorithm>

#include "nn/step/loss.h"
#include "nn/step/train_set.h"
#include "ops/arg_max.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/group_norm.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

// The part that all steps share: inputs, the model, and the losses.
class StepBuilder {
 public:
  StepBuilder(const StepConfig& c, const std::string& name, Mode mode) : c_(c), b_(name), net_(b_, mode) {}

  Value step_input(const char* name, DType t, Shape shape = {}) { return b_.input({t, shape}, InputKind::step, name); }

  Value logits(const TensorType& sample, int64_t batch) {
    Ints shape{batch};
    shape.insert(shape.end(), sample.shape.begin(), sample.shape.end());
    batch_ = batch;
    Value x = b_.input({sample.dtype, Shape(shape)}, InputKind::batch, "x");
    if (net_.training()) {
      net_.key = step_input("key", DType::i64, {2});
      net_.index = b_.input({DType::i64, {batch}}, InputKind::batch, "index");
    }
    if (c_.task == Task::restore) image_ = reshape(cast(x, DType::f32) * (1.0 / 255), rows_of(x, x.dim(3)));
    x_ = x.dtype() == DType::u8 ? normalized(x) : x;
    return output(net_);
  }

  // The loss of each term: of a row, or of each number of it.
  Value losses(Value y) {
    const Origin origin(b_, "loss", Role::loss);
    read_target(y);
    return losses_of(y);
  }

  // The mean loss over the optimizer step's loss terms (this batch's share of it).
  Value scaled_loss(const TensorType& sample, int64_t batch) {
    const Value l = losses(logits(sample, batch));
    const Value scale = step_input("loss_weight", DType::f32);
    const Origin origin(b_, "loss", Role::loss);
    return sum_all(l) * scale;
  }

  std::function<bool(const StateSpec&)> trained() const {
    return [this](const StateSpec& s) { return is_trained(s); };
  }

  bool is_trained(const StateSpec& s) const {
    if (s.kind != InputKind::param) return false;
    const ParamGroup* group = find_group(c_.optimizer.groups, s.name);
    return !group || !group->frozen;
  }

  StepSet train(Value loss) {
    LATHE_USER_CHECK(std::ranges::any_of(net_.specs(), [&](const StateSpec& s) { return is_trained(s); }),
                     "model.family \"{}\": expected a parameter to train, got none", c_.model.family);
    return train_set(net_, loss, c_.optimizer, {.scope = "", .trained = trained()});
  }
  StepSet finish() { return finish_set(net_, trained()); }

  Builder& b() { return b_; }
  Net& net() { return net_; }
  // What evaluation counts beside the loss.
  void measure(Value y) {
    const Origin origin(b_, "metrics", Role::metric);
    const auto sum = [&](Value v, const std::string& name) { b_.output(sum_all(v), OutputKind::metric, name); };
    if (c_.task == Task::regress || c_.task == Task::restore) sum(square(y - target_), "square_sum");
    if (c_.task == Task::regress) {
      sum(abs(y - target_), "distance_sum");
      sum(target_, "target_sum");
      sum(square(target_), "target_square_sum");
    } else if (c_.task == Task::restore) {
      sum(square(image_ - target_), "input_error_sum");
    } else if (c_.task == Task::embed) {
      sum(nearest_hits(y, target_), "correct");
    } else {
      const Value guess = arg_max(y, -1);
      sum(cast(equal(guess, target_), DType::f32), "correct");
      if (c_.task != Task::segment || c_.model.classes > kMostMaskClasses) return;
      for (int64_t k = 0; k < c_.model.classes; ++k) {
        const Value which = constant_like(target_, static_cast<double>(k));
        const Value a = cast(equal(guess, which), DType::f32), b = cast(equal(target_, which), DType::f32);
        sum(a * b, fmt::format("meet_{}", k));
        sum(maximum(a, b), fmt::format("join_{}", k));
      }
    }
  }

 private:
  static Shape rows_of(Value x, int64_t columns) { return {x.shape().numel() / columns, columns}; }

  Value output(Net& net) {
    const Value y = find_family(c_.model.family).build(net, c_.model, x_);
    LATHE_USER_CHECK(y.valid() && &y.builder() == &b_,
                     "model.family \"{}\": expected a value of the net's graph of its build function, got {}",
                     c_.model.family, y.valid() ? "one of another Builder" : "one that names nothing (Value{})");
    return c_.task == Task::restore ? y + image_ : y;
  }

  void read_target(Value y) {
    const int64_t rows = y.dim(0);
    const auto input = [&](DType t, Shape shape) { return b_.input({t, shape}, InputKind::batch, "y"); };
    switch (c_.task) {
      case Task::classify:
      case Task::embed:
        target_ = reshape(input(DType::i32, rows == batch_ ? Shape{batch_} : Shape{batch_, rows / batch_}), {rows});
        break;
      case Task::regress: target_ = input(DType::f32, {batch_, y.dim(1)}); break;
      case Task::segment:
        target_ = cast(reshape(input(DType::u8, {batch_, x_.dim(1), x_.dim(2)}), {rows}), DType::i32);
        break;
      case Task::restore: {
        const Value clean = input(DType::u8, x_.shape());
        target_ = reshape(cast(clean, DType::f32) * (1.0 / 255), y.shape());
        break;
      }
    }
  }

  Value losses_of(Value y) {
    const auto own = find_family(c_.model.family).loss;
    if (own && is_auto(c_.loss)) {
      const Value losses = own(net_, c_.model, y, target_);
      LATHE_USER_CHECK(losses.valid() && &losses.builder() == &b_,
                       "model.family \"{}\": expected a value of the net's graph of its loss function",
                       c_.model.family);
      return losses;
    }
    return lathe::losses_of(c_, y, target_);
  }

  Value normalized(Value x) {
    Origin origin(b_, "input");
    const int64_t channels = x.dim(-1);
    const auto per_channel = [&](const std::vector<double>& v, size_t i) { return v.size() == 1 ? v[0] : v[i]; };
    LATHE_USER_CHECK((c_.model.mean.size() == 1 || static_cast<int64_t>(c_.model.mean.size()) == channels) &&
                         (c_.model.std.size() == 1 || static_cast<int64_t>(c_.model.std.size()) == channels),
                     "data.normalize: expected 1 or {} values (one per channel), got {} means and {} deviations",
                     channels, c_.model.mean.size(), c_.model.std.size());
    Value y = cast(x, DType::f32);
    if (c_.model.mean.size() == 1 && c_.model.std.size() == 1)
      return y * (1 / (255 * c_.model.std[0])) - c_.model.mean[0] / c_.model.std[0];
    // Per channel: constants picked by the channel's number.
    const Value channel = iota(b_, {DType::i32, {channels}}, 0);
    Value scale = full(b_, {DType::f32, {channels}}, 0), shift = scale;
    for (int64_t i = 0; i < channels; ++i) {
      const double mean = per_channel(c_.model.mean, static_cast<size_t>(i)),
                   std = per_channel(c_.model.std, static_cast<size_t>(i));
      const Value here = equal(channel, constant_like(channel, static_cast<double>(i)));
      scale = select(here, constant_like(scale, 1 / (255 * std)), scale);
      shift = select(here, constant_like(shift, -mean / std), shift);
    }
    return y * scale + shift;
  }

  const StepConfig& c_;
  Builder b_;
  Net net_;
  Value x_, image_, target_;  // the target as the loss takes it
  int64_t batch_ = 0;
};

}  // namespace

StepSet train_step(const StepConfig& c, const TensorType& x, int64_t batch) {
  StepBuilder s(c, "train", Mode::train);
  const Value loss = s.scaled_loss(x, batch);
  return s.train(loss);
}

StepSet eval_step(const StepConfig& config, const TensorType& x, int64_t batch) {
  StepConfig c = config;
  c.loss = evaluation_loss(config);
  StepBuilder s(c, "eval", Mode::eval);
  const Value y = s.logits(x, batch);
  const Value losses = s.losses(y);
  {
    const Origin origin(s.b(), "metrics", Role::metric);
    s.b().output(sum_all(losses), OutputKind::metric, "loss_sum");
  }
  s.measure(y);
  return s.finish();
}

std::vector<std::string> parameter_names(const StepConfig& c, const TensorType& x) {
  StepBuilder model(c, "model", Mode::eval);
  model.logits(x, 1);
  std::vector<std::string> out;
  for (const StateSpec& s : model.net().specs())
    if (s.kind == InputKind::param) out.push_back(s.name);
  return out;
}

StepSet predict_step(const StepConfig& c, const TensorType& x, int64_t batch) {
  StepBuilder s(c, "predict", Mode::eval);
  const Value y = s.logits(x, batch);
  // Embeddings as the losses compare them: of length 1.
  s.b().output(c.task == Task::embed ? l2_normalize(y) : y, OutputKind::result, "logits");
  return s.finish();
}

}  // namespace lathe
