#include "nn/step.h"

#include "ops/arg_max.h"
#include "ops/cast.h"
#include "ops/cross_entropy.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/grad.h"
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
    const ModelFamily& family = find_family(c_.model.family);
    Ints shape{batch};
    shape.insert(shape.end(), sample.shape.begin(), sample.shape.end());
    batch_ = batch;
    Value x = b_.input({sample.dtype, Shape(shape)}, InputKind::batch, "x");
    rows_ = batch;
    if (input_form(c_.model) == InputForm::tokens) rows_ *= x.dim(1);
    if (net_.training()) {
      net_.key = step_input("key", DType::i64, {2});
      net_.index = b_.input({DType::i64, {batch}}, InputKind::batch, "index");
    }
    if (input_form(c_.model) == InputForm::image) x = normalized(x);
    return family.build(net_, c_.model, x);
  }

  Value losses(Value logits, double smoothing) {
    labels_ =
        b_.input({DType::i32, rows_ == batch_ ? Shape{batch_} : Shape{batch_, rows_ / batch_}}, InputKind::batch, "y");
    Origin origin(b_, "loss");
    labels_ = reshape(labels_, {rows_});
    return cross_entropy(logits, labels_, smoothing);
  }

  // The mean loss over the optimizer step's loss terms (this batch's share of it).
  Value scaled_loss(const TensorType& sample, int64_t batch) {
    const Value l = losses(logits(sample, batch), c_.label_smoothing);
    const Value scale = step_input("loss_scale", DType::f32);
    Origin origin(b_, "loss");
    return sum_all(l) * scale;
  }

  Values gradients(Value loss) {
    Origin origin(b_, "loss");
    if (c_.gradient_scale == 1) return grad(loss, net_.params());
    Values g = grad(loss * c_.gradient_scale, net_.params());
    for (Value& v : g) v = v * (1 / c_.gradient_scale);
    return g;
  }

  std::vector<StateSpec> param_specs() const {
    std::vector<StateSpec> out;
    for (const StateSpec& s : net_.specs())
      if (s.kind == InputKind::param) out.push_back(s);
    return out;
  }

  // Gradients to updates: clipping, the flags, the optimizer.
  void apply(const Values& gradients, Value loss, std::vector<StateSpec>& state) {
    Origin origin(b_, "update");
    const Value lr = step_input("lr", DType::f32);
    Optimizer optimizer(b_, c_.optimizer, param_specs());
    state.insert(state.end(), optimizer.specs().begin(), optimizer.specs().end());
    Values g = gradients;
    if (c_.clip_value > 0)
      for (Value& v : g) v = minimum(maximum(v, constant_like(v, -c_.clip_value)), constant_like(v, c_.clip_value));
    // Sum of squares per tensor: finite exactly when every element is (or its square overflows, which no update
    // survives either).
    Values squares;
    for (const Value& v : g) squares.push_back(sum_all(square(v)));
    Value total = squares[0];
    for (size_t i = 1; i < squares.size(); ++i) total = total + squares[i];
    const Value norm = sqrt(total);
    const Value loss_ok = loss.valid() ? is_finite(loss) : Value();
    const auto both = [&](Value flag) { return loss_ok.valid() ? logical_and(loss_ok, flag) : flag; };
    const Value all_ok = both(is_finite(total));
    Value factor;
    if (c_.clip_norm > 0) factor = minimum(c_.clip_norm / (norm + 1e-6), constant_like(norm, 1.0));
    for (size_t i = 0; i < g.size(); ++i) {
      const Value gradient = factor.valid() ? g[i] * factor : g[i];
      optimizer.update(i, net_.params()[i], gradient, lr, c_.at_gradient ? both(is_finite(squares[i])) : all_ok);
    }
    optimizer.finish(all_ok);
    b_.output(norm, OutputKind::metric, "grad_norm");
    b_.output(cast(all_ok, DType::f32), OutputKind::metric, "accepted");
  }

  void apply_buffers(Value loss) {
    const Value ok = is_finite(loss);
    for (const auto& [buffer, now] : net_.buffer_updates()) b_.update(buffer, select(ok, now, buffer));
  }

  Builder& b() { return b_; }
  Net& net() { return net_; }
  Value labels() const { return labels_; }

 private:
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
  Value labels_;
  int64_t batch_ = 0, rows_ = 0;
};

std::vector<StateSpec> accumulators(const std::vector<StateSpec>& params) {
  std::vector<StateSpec> out;
  for (const StateSpec& p : params)
    out.push_back({p.name + ".grad", p.type, InputKind::gradient, Init::constant(0), p.file});
  return out;
}

}  // namespace

Step train_step(const StepConfig& c, const TensorType& x, int64_t batch) {
  StepBuilder s(c, "train", Mode::train);
  const Value loss = s.scaled_loss(x, batch);
  std::vector<StateSpec> state = s.net().specs();
  s.apply(s.gradients(loss), loss, state);
  s.apply_buffers(loss);
  s.b().output(loss, OutputKind::metric, "loss");
  return {s.b().finish(), std::move(state)};
}

Step accumulate_step(const StepConfig& c, const TensorType& x, int64_t batch) {
  StepBuilder s(c, "accumulate", Mode::train);
  const Value loss = s.scaled_loss(x, batch);
  std::vector<StateSpec> state = s.net().specs();
  const Values g = s.gradients(loss);
  const auto sums = accumulators(s.param_specs());
  for (size_t i = 0; i < g.size(); ++i) {
    const Value sum = s.b().input(sums[i].type, InputKind::gradient, sums[i].name);
    s.b().update(sum, sum + g[i]);
  }
  state.insert(state.end(), sums.begin(), sums.end());
  s.apply_buffers(loss);
  s.b().output(loss, OutputKind::metric, "loss");
  return {s.b().finish(), std::move(state)};
}

Step update_step(const StepConfig& c, const TensorType& x) {
  // The model is built only for its parameters; dce drops the rest together with the batch inputs.
  StepBuilder model(c, "model", Mode::eval);
  model.logits(x, 1);
  const auto params = model.param_specs();
  StepBuilder s(c, "update", Mode::eval);
  std::vector<StateSpec> state;
  Values g, sums;
  for (const StateSpec& p : params) {
    s.net().param(p.name, p.type.shape, p.init, p.file);
    state.push_back(p);
  }
  for (const StateSpec& a : accumulators(params)) {
    sums.push_back(s.b().input(a.type, InputKind::gradient, a.name));
    state.push_back(a);
  }
  s.apply(sums, Value(), state);
  for (const Value& sum : sums) s.b().update(sum, zeros(s.b(), sum.type()));
  return {s.b().finish(), std::move(state)};
}

Step eval_step(const StepConfig& c, const TensorType& x, int64_t batch) {
  StepBuilder s(c, "eval", Mode::eval);
  const Value y = s.logits(x, batch);
  const Value losses = s.losses(y, 0);
  s.b().output(sum_all(losses), OutputKind::metric, "loss_sum");
  const Value hit = equal(arg_max(y, -1), s.labels());
  s.b().output(sum_all(cast(hit, DType::f32)), OutputKind::metric, "correct");
  std::vector<StateSpec> state = s.net().specs();
  return {s.b().finish(), std::move(state)};
}

Step predict_step(const StepConfig& c, const TensorType& x, int64_t batch) {
  StepBuilder s(c, "predict", Mode::eval);
  s.b().output(s.logits(x, batch), OutputKind::result, "logits");
  std::vector<StateSpec> state = s.net().specs();
  return {s.b().finish(), std::move(state)};
}

}  // namespace lathe
