#include "nn/step/step.h"

#include <algorithm>

#include "nn/step/loss.h"
#include "ops/arg_max.h"
#include "ops/cast.h"
#include "ops/elementwise.h"
#include "ops/full.h"
#include "ops/gather.h"
#include "ops/grad.h"
#include "ops/group_norm.h"
#include "ops/reduce.h"
#include "ops/reshape.h"

namespace lathe {
namespace {

// The part that all steps share: inputs, the model, and the losses.
class StepBuilder {
 public:
  StepBuilder(const StepConfig& c, const std::string& name, Mode mode) : c_(c), b_(name), net_(b_, mode) {}

  void read_averages() {
    if (c_.average)
      net_.read_averages([this](const StateSpec& s) { return s.kind == InputKind::buffer || is_trained(s); });
  }

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
    Origin origin(b_, "loss");
    read_target(y);
    return losses_of(y);
  }

  // The mean loss over the optimizer step's loss terms (this batch's share of it).
  Value scaled_loss(const TensorType& sample, int64_t batch) {
    const Value l = losses(logits(sample, batch));
    scale_ = step_input("loss_scale", DType::f32);
    Origin origin(b_, "loss");
    return sum_all(l) * scale_;
  }

  // Of the trained parameters.
  Values gradients(Value loss) {
    Origin origin(b_, "loss");
    const Values params = trained_params();
    check_some(params);
    const Values g = gradients(loss, params);
    if (c_.sam == 0) return g;
    Origin sam(b_, "sam");
    Value total = sum_all(square(g[0]));
    for (size_t i = 1; i < g.size(); ++i) total = total + sum_all(square(g[i]));
    const Value factor = c_.sam / (sqrt(total) + 1e-12);
    Net::Known known;
    for (size_t i = 0; i < net_.specs().size(); ++i) known[net_.specs()[i].name] = net_.values()[i];
    Values moved;
    for (size_t i = 0; i < g.size(); ++i) {
      moved.push_back(params[i] + g[i] * factor);
      known[trained_specs()[i].name] = moved.back();
    }
    // The same batch with the same dropout; running statistics are those of the first pass.
    Net there(b_, Mode::train, std::move(known));
    there.key = net_.key;
    there.index = net_.index;
    return gradients(sum_all(losses_of(output(there))) * scale_, moved);
  }

  bool is_trained(const StateSpec& s) const {
    if (s.kind != InputKind::param) return false;
    const ParamGroup* group = find_group(c_.optimizer.groups, s.name);
    return !group || !group->frozen;
  }

  std::vector<StateSpec> trained_specs() const {
    std::vector<StateSpec> out;
    for (const StateSpec& s : net_.specs())
      if (is_trained(s)) out.push_back(s);
    return out;
  }

  Values trained_params() const {
    Values out;
    for (size_t i = 0; i < net_.specs().size(); ++i)
      if (is_trained(net_.specs()[i])) out.push_back(net_.values()[i]);
    return out;
  }

  // Names of parameters whose rows are looked up.
  std::vector<std::string> tables() const {
    std::vector<std::string> out;
    for (const Node& n : b_.graph().nodes)
      if (n.op == &gather_op)
        for (const Input& in : b_.graph().inputs)
          if (in.value == n.inputs[0] && in.kind == InputKind::param) out.push_back(in.name);
    return out;
  }

  // Gradients to updates: clipping, the flags, the optimizer.
  void apply(const Values& gradients, const std::vector<std::string>& tables, Value loss,
             std::vector<StateSpec>& state) {
    Origin origin(b_, "update");
    const Value lr = step_input("lr", DType::f32);
    const std::vector<StateSpec> specs = trained_specs();
    const Values params = trained_params();
    check_some(params);
    Optimizer optimizer(b_, c_.optimizer, specs);
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
    if (!c_.at_gradient) accepted_ = all_ok;
    Value factor;
    if (c_.clip_norm > 0) factor = minimum(c_.clip_norm / (norm + 1e-6), constant_like(norm, 1.0));
    for (size_t i = 0; i < g.size(); ++i) {
      const Value gradient = factor.valid() ? g[i] * factor : g[i];
      const bool table = std::ranges::find(tables, specs[i].name) != tables.end();
      const Value now =
          optimizer.update(i, params[i], gradient, lr, c_.at_gradient ? both(is_finite(squares[i])) : all_ok, table);
      after_.push_back({specs[i], now});
    }
    optimizer.finish(all_ok);
    state.insert(state.end(), optimizer.specs().begin(), optimizer.specs().end());
    if (c_.scale_growth > 0) adapt_scale(all_ok, state);
    b_.output(norm, OutputKind::metric, "grad_norm");
    b_.output(cast(all_ok, DType::f32), OutputKind::metric, "accepted");
  }

  // State of a scale that adapts, as this step reads it: once, before apply().
  void add_scale_state(std::vector<StateSpec>& state) const {
    if (c_.scale_growth > 0) state.push_back(scale_spec());
  }

  // Averages of what the step leaves behind: no flag is needed, a refused step leaves the old values. Written so that
  // shares of 0 and 1 keep every bit.
  void apply_averages(std::vector<StateSpec>& state) {
    if (!c_.average) return;
    Origin origin(b_, "average");
    const Value share = step_input("average", DType::f32);
    const Value rest = 1.0 - share;
    for (const auto& [spec, now] : after_) {
      state.push_back(average_of(spec));
      const Value average = b_.input(spec.type, InputKind::optimizer, state.back().name);
      b_.update(average, average * rest + now * share);
    }
  }

  void apply_buffers(Value loss) {
    const Value ok = accepted_.valid() ? accepted_ : is_finite(loss);
    for (const auto& [buffer, now] : net_.buffer_updates()) {
      const Value kept = select(ok, now, buffer);
      b_.update(buffer, kept);
      for (size_t i = 0; i < net_.specs().size(); ++i)
        if (net_.values()[i].id() == buffer.id()) after_.push_back({net_.specs()[i], kept});
    }
  }

  // Buffers that this step reads for their averages alone: other Programs write them.
  void keep_buffer(const StateSpec& s) { after_.push_back({s, net_.buffer(s.name, s.type.shape, s.init)}); }

  Builder& b() { return b_; }
  Net& net() { return net_; }
  // What evaluation counts beside the loss.
  void measure(Value y) {
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
  void check_some(const Values& trained) const {
    LATHE_USER_CHECK(!trained.empty(), "model.family \"{}\": expected a parameter to train, got none", c_.model.family);
  }

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

  // In f16 the loss is scaled up and the gradients down again.
  Values gradients(Value loss, const Values& wrt) {
    if (c_.scale_growth > 0) {
      const Value by = gradient_scale(), back = 1.0 / by;
      Values g = grad(loss * by, wrt);
      for (Value& v : g) v = v * back;
      return g;
    }
    if (c_.gradient_scale == 1) return grad(loss, wrt);
    Values g = grad(loss * c_.gradient_scale, wrt);
    for (Value& v : g) v = v * (1 / c_.gradient_scale);
    return g;
  }

  StateSpec scale_spec() const {
    return {"gradient_scale", {DType::f32, {}}, InputKind::optimizer, Init::constant(c_.gradient_scale), {}, {}};
  }
  StateSpec streak_spec() const {
    return {"gradient_scale.streak", {DType::f32, {}}, InputKind::optimizer, Init::constant(0), {}, {}};
  }

  Value gradient_scale() {
    if (!gradient_scale_.valid())
      gradient_scale_ = b_.input(scale_spec().type, InputKind::optimizer, scale_spec().name);
    return gradient_scale_;
  }

  // After the paper on mixed precision (Micikevicius et al., 2018), section 3.2.
  void adapt_scale(Value ok, std::vector<StateSpec>& state) {
    Origin origin(b_, "gradient_scale");
    const Value scale = gradient_scale(),
                streak = b_.input(streak_spec().type, InputKind::optimizer, streak_spec().name);
    const Value longer = streak + 1.0;
    const Value grows = equal(longer, constant_like(longer, static_cast<double>(c_.scale_growth)));
    const Value zero = constant_like(streak, 0.0), grown = minimum(scale * 2.0, constant_like(scale, kLargestScale));
    b_.output(scale, OutputKind::metric, "gradient_scale");
    b_.update(streak, select(ok, select(grows, zero, longer), zero));
    b_.update(scale, select(ok, select(grows, grown, scale), maximum(scale * 0.5, constant_like(scale, 1.0))));
    add_scale_state(state);
    state.push_back(streak_spec());
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
  Value x_, image_, target_, scale_, gradient_scale_;  // the target as the loss takes it
  Value accepted_;                                     // the flag of the whole step, where one gates all of it
  std::vector<std::pair<StateSpec, Value>> after_;     // weights and buffers as the step leaves them
  int64_t batch_ = 0;
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
  const auto tables = s.tables();
  s.apply(s.gradients(loss), tables, loss, state);
  s.apply_buffers(loss);
  s.apply_averages(state);
  s.b().output(loss, OutputKind::metric, "loss");
  return {s.b().finish(), std::move(state)};
}

Step accumulate_step(const StepConfig& c, const TensorType& x, int64_t batch) {
  StepBuilder s(c, "accumulate", Mode::train);
  const Value loss = s.scaled_loss(x, batch);
  std::vector<StateSpec> state = s.net().specs();
  const Values g = s.gradients(loss);
  const auto sums = accumulators(s.trained_specs());
  for (size_t i = 0; i < g.size(); ++i) {
    const Value sum = s.b().input(sums[i].type, InputKind::gradient, sums[i].name);
    s.b().update(sum, sum + g[i]);
  }
  s.add_scale_state(state);
  state.insert(state.end(), sums.begin(), sums.end());
  s.apply_buffers(loss);
  s.b().output(loss, OutputKind::metric, "loss");
  return {s.b().finish(), std::move(state)};
}

Step update_step(const StepConfig& c, const TensorType& x) {
  // The model is built only for its state; dce drops the rest together with the batch inputs.
  StepBuilder model(c, "model", Mode::eval);
  model.logits(x, 1);
  const auto params = model.trained_specs();
  StepBuilder s(c, "update", Mode::eval);
  std::vector<StateSpec> state;
  Values sums;
  for (const StateSpec& p : params) {
    s.net().param(p.name, p.type.shape, p.init, p.file);
    state.push_back(p);
  }
  for (const StateSpec& a : accumulators(params)) {
    sums.push_back(s.b().input(a.type, InputKind::gradient, a.name));
    state.push_back(a);
  }
  s.apply(sums, model.tables(), Value(), state);
  if (c.average)
    for (const StateSpec& spec : model.net().specs())
      if (spec.kind == InputKind::buffer) {
        s.keep_buffer(spec);
        state.push_back(spec);
      }
  s.apply_averages(state);
  for (const Value& sum : sums) s.b().update(sum, zeros(s.b(), sum.type()));
  return {s.b().finish(), std::move(state)};
}

Step eval_step(const StepConfig& config, const TensorType& x, int64_t batch) {
  StepConfig c = config;
  c.loss = evaluation_loss(config);
  StepBuilder s(c, "eval", Mode::eval);
  s.read_averages();
  const Value y = s.logits(x, batch);
  const Value losses = s.losses(y);
  s.b().output(sum_all(losses), OutputKind::metric, "loss_sum");
  s.measure(y);
  std::vector<StateSpec> state = s.net().specs();
  return {s.b().finish(), std::move(state)};
}

std::vector<std::string> parameter_names(const StepConfig& c, const TensorType& x) {
  StepBuilder model(c, "model", Mode::eval);
  model.logits(x, 1);
  std::vector<std::string> out;
  for (const StateSpec& s : model.net().specs())
    if (s.kind == InputKind::param) out.push_back(s.name);
  return out;
}

Step predict_step(const StepConfig& c, const TensorType& x, int64_t batch) {
  StepBuilder s(c, "predict", Mode::eval);
  s.read_averages();
  const Value y = s.logits(x, batch);
  // Embeddings as the losses compare them: of length 1.
  s.b().output(c.task == Task::embed ? l2_normalize(y) : y, OutputKind::result, "logits");
  std::vector<StateSpec> state = s.net().specs();
  return {s.b().finish(), std::move(state)};
}

}  // namespace lathe
