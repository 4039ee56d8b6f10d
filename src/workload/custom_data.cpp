#include "workload/custom_data.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "data/hold_out.h"
#include "recipe/recipe_errors.h"
#include "recipe/sources/source.h"

namespace lathe {
namespace {

// What a class derived from Source may have wrong before a sample is read.
void check_form(const data::Source& s) {
  LATHE_USER_CHECK(s.fields().size() == 2, "{}: expected two fields, the sample and its target, got {}",
                   s.description(), s.fields().size());
  LATHE_USER_CHECK(s.size() > 0, "{}: expected at least one sample, got {}", s.description(), s.size());
}

// A source whose targets are checked as they are read: what reads by label trusts it.
class Checked final : public data::Source {
 public:
  explicit Checked(std::shared_ptr<const Source> whole)
      : whole_(std::move(whole)), target_(whole_->fields()[1].type), classes_(whole_->classes()) {
    is_mask_ = target_.dtype == DType::u8 && target_ != whole_->fields()[0].type;
  }

  int64_t size() const override { return whole_->size(); }
  std::span<const data::Field> fields() const override { return whole_->fields(); }
  void read(int64_t index, data::SampleSpans fields) const override {
    whole_->read(index, fields);
    if (target_.dtype == DType::i32) {
      for (size_t at = 0; at < fields[1].size(); at += sizeof(int32_t)) {
        int32_t label = 0;
        std::memcpy(&label, fields[1].data() + at, sizeof label);
        check(label >= 0 && label < classes_, index, label);
      }
    } else if (target_.dtype == DType::f32) {
      for (size_t at = 0; at < fields[1].size(); at += sizeof(float)) {
        float v = 0;
        std::memcpy(&v, fields[1].data() + at, sizeof v);
        LATHE_USER_CHECK(std::isfinite(v), "{}: expected finite numbers to predict, got {} for sample {}",
                         description(), v, index);
      }
    } else if (is_mask_) {
      const auto largest = static_cast<int64_t>(*std::ranges::max_element(fields[1]));
      check(largest < classes_, index, largest);
    }
  }
  int64_t classes() const override { return classes_; }
  std::string description() const override { return whole_->description(); }
  int64_t resident_bytes() const override { return whole_->resident_bytes(); }
  data::LabelUnits label_units() const override { return whole_->label_units(); }
  std::optional<int32_t> label(int64_t index) const override {
    const auto known = whole_->label(index);
    if (known) check(*known >= 0 && *known < classes_, index, *known);
    return known;
  }

 private:
  void check(bool fits, int64_t index, int64_t got) const {
    LATHE_USER_CHECK(fits, "{}: expected classes in [0, {}), got {} for sample {}", description(), classes_, got,
                     index);
  }

  std::shared_ptr<const Source> whole_;
  TensorType target_;
  int64_t classes_;
  bool is_mask_ = false;
};

// The data.target that field 1 is.
data::LabelKind label_kind_of(const data::Source& s) {
  const TensorType &x = s.fields()[0].type, &y = s.fields()[1].type;
  if (y == TensorType{DType::i32, {}}) return data::LabelKind::class_index;
  if (y.dtype == DType::f32 && y.shape.ndim() == 1) return data::LabelKind::value;
  if (y == TensorType{DType::u8, {x.shape[0], x.shape[1]}}) return data::LabelKind::mask;
  if (y == x && y.dtype == DType::u8) return data::LabelKind::image;
  throw UserError(fmt::format("{}: expected targets of i32 [], f32 [n], u8 [H, W] or u8 as the sample, got {} for {}",
                              s.description(), to_string(y), to_string(x)));
}

// A source whose numbers to predict are standardised as those of another one.
class Rescaled final : public data::Source {
 public:
  Rescaled(std::shared_ptr<const Source> whole, data::LabelUnits to)
      : whole_(std::move(whole)), from_(whole_->label_units()), to_(std::move(to)) {}

  int64_t size() const override { return whole_->size(); }
  std::span<const data::Field> fields() const override { return whole_->fields(); }
  void read(int64_t index, data::SampleSpans fields) const override {
    whole_->read(index, fields);
    for (size_t i = 0; i < fields[1].size() / sizeof(float); ++i) {
      std::byte* at = fields[1].data() + i * sizeof(float);
      float v = 0;
      std::memcpy(&v, at, sizeof v);
      v = static_cast<float>((v * from_.scale_of(i) + from_.mean_of(i) - to_.mean_of(i)) / to_.scale_of(i));
      std::memcpy(at, &v, sizeof v);
    }
  }
  int64_t classes() const override { return whole_->classes(); }
  std::string description() const override { return whole_->description(); }
  int64_t resident_bytes() const override { return whole_->resident_bytes(); }
  data::LabelUnits label_units() const override { return to_; }

 private:
  std::shared_ptr<const Source> whole_;
  data::LabelUnits from_, to_;
};

// Data to evaluate with: checked, and in the units of training.
std::shared_ptr<const data::Source> as_training(const Recipe& r, const DataSpec& spec,
                                                std::shared_ptr<const data::Source> s) {
  check_form(*s);
  s = std::make_shared<Checked>(std::move(s));
  const std::span<const data::Field> fields = s->fields();
  LATHE_USER_CHECK(fields[0].type == spec.sample && s->classes() == spec.classes,
                   "{}: expected samples of {} with {} classes as for training, got {} with {}", s->description(),
                   to_string(spec.sample), spec.classes, to_string(fields[0].type), s->classes());
  LATHE_USER_CHECK(fields[1].type == spec.label, "{}: expected targets of {} as for training, got {}", s->description(),
                   to_string(spec.label), to_string(fields[1].type));
  if (label_kind_of(r) != data::LabelKind::value) return s;
  const data::LabelUnits u = s->label_units();
  for (const size_t n : {u.means.size(), u.scales.size()})
    LATHE_USER_CHECK(n == 0 || static_cast<int64_t>(n) == spec.classes, "{}: expected units of {} numbers, got {}",
                     s->description(), spec.classes, n);
  return std::make_shared<Rescaled>(std::move(s), spec.units);
}

}  // namespace

Recipe with_custom_data(Recipe r, const data::Source& train) {
  check_form(train);
  const TensorType& sample = train.fields()[0].type;
  LATHE_USER_CHECK((sample.dtype == DType::f32 || sample.dtype == DType::u8) && sample.shape.ndim() == 3,
                   "{}: expected samples of f32 or u8 [H, W, C], got {}", train.description(), to_string(sample));
  const data::LabelKind target = label_kind_of(train);
  LATHE_USER_CHECK(label_kind_of(r) == target || label_kind_of(r) == data::LabelKind::class_index,
                   "data.target: expected \"{}\" for {}, got \"{}\"", name_of(target), train.description(),
                   r.data.target);
  r.data.target = name_of(target);
  r.data.source = own_source(sample.dtype);
  r.data.path.clear();
  ParamSet& own = r.data.source.params;
  own.set("shape", sample.shape.to_ints());
  if (target != data::LabelKind::image) r.data.classes = train.classes();
  if (target == data::LabelKind::value) {
    const data::LabelUnits u = train.label_units();
    own.set("target_mean", u.means.empty() ? Doubles{u.mean} : u.means);
    own.set("target_scale", u.scales.empty() ? Doubles{u.scale} : u.scales);
  }
  r.data.train_samples = r.data.test_samples = 0;
  validate(r);
  return r;
}

Dataset custom_dataset(const Recipe& r, std::shared_ptr<const data::Source> train,
                       std::shared_ptr<const data::Source> validation, std::shared_ptr<const data::Source> test) {
  Dataset out;
  out.spec = custom_data_spec(r);
  out.resident_bytes = train->resident_bytes();
  train = std::make_shared<Checked>(std::move(train));
  for (auto* evaluated : {&validation, &test})
    if (*evaluated) {
      *evaluated = as_training(r, out.spec, std::move(*evaluated));
      out.resident_bytes += (*evaluated)->resident_bytes();
    }
  if (r.data.validation > 0) {
    if (validation)
      throw_recipe_error(r, {"data.validation"},
                         "expected 0 for a program that gives validation data, which are the validation set, got "
                         "a part of the training samples as well");
    const int64_t all = train->size(), held = data::held_out_count(r.data.validation, all);
    if (held == 0 || held == all)
      throw_recipe_error(
          r, {"data.validation"},
          fmt::format("expected a part of {} samples that leaves some for both, got {}", all, r.data.validation));
    out.resident_bytes += data::hold_out_bytes(all);
    data::HeldOut parts = data::hold_out(std::move(train), held, static_cast<uint64_t>(r.seed));
    train = std::move(parts.train);
    validation = std::move(parts.validation);
    out.held_out = parts.fingerprint;
  }
  out.train = std::move(train);
  out.validation = std::move(validation);
  out.test = std::move(test);
  out.spec.train = out.train->size();
  out.spec.validation = out.validation ? out.validation->size() : 0;
  out.spec.test = out.test ? out.test->size() : 0;
  out.spec.resident_bytes = out.resident_bytes;
  check_fit(r, out.spec);
  return out;
}

DataSpec custom_data_spec(const Recipe& r) {
  DataSpec spec;
  const ParamSet& own = r.data.source.params;
  const data::LabelKind target = label_kind_of(r);
  spec.sample = {facts_of(r).own.value(), Shape(*own.find<Ints>("shape"))};
  const bool image = target == data::LabelKind::image;
  spec.classes = image ? spec.sample.shape[2] : r.data.classes;
  if (target == data::LabelKind::value) {
    spec.label = {DType::f32, {spec.classes}};
    spec.units = data::units_of(*own.find<Doubles>("target_mean"), *own.find<Doubles>("target_scale"));
  } else if (target == data::LabelKind::mask) {
    spec.label = {DType::u8, {spec.sample.shape[0], spec.sample.shape[1]}};
  } else if (image) {
    spec.label = spec.sample;
  }
  return spec;
}

void refuse_custom_data(const Recipe& r) {
  if (is_custom_data(r))
    throw UserError(
        fmt::format("data.source: \"{}\" means the arrays of the program that trained this run; only it can "
                    "open them (predictions for other samples, `lathe predict RUN x.npy`, need none)",
                    r.data.source.name),
        Exit::missing_input);
}

}  // namespace lathe
