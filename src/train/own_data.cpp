#include "train/own_data.h"

#include "train/recipe_errors.h"

namespace lathe {
namespace {

constexpr const char* kFloats = "arrays";
constexpr const char* kPixels = "pixel_arrays";

}  // namespace

bool is_own_data(const Recipe& r) { return r.data.source == kFloats || r.data.source == kPixels; }

Recipe with_own_data(Recipe r, const data::Source& train) {
  const TensorType& sample = train.fields()[0].type;
  LATHE_USER_CHECK((sample.dtype == DType::f32 || sample.dtype == DType::u8) && sample.shape.ndim() == 3,
                   "{}: expected samples of f32 or u8 [H, W, C], got {}", train.description(), to_string(sample));
  LATHE_USER_CHECK(r.data.target == "class", "data.target: expected \"class\" for arrays, got \"{}\"", r.data.target);
  r.data.source = sample.dtype == DType::f32 ? kFloats : kPixels;
  r.data.path.clear();
  r.data.shape = sample.shape.to_ints();
  r.data.classes = train.classes();
  r.data.train_samples = r.data.test_samples = 0;
  validate(r);
  return r;
}

Dataset own_dataset(const Recipe& r, std::shared_ptr<const data::Source> train,
                    std::shared_ptr<const data::Source> eval) {
  Dataset out;
  out.spec = own_data_spec(r);
  out.resident_bytes = train->resident_bytes();
  if (eval) {
    LATHE_USER_CHECK(eval->fields()[0].type == out.spec.sample && eval->classes() == out.spec.classes,
                     "{}: expected samples of {} with {} classes as for training, got {} with {}", eval->description(),
                     to_string(out.spec.sample), out.spec.classes, to_string(eval->fields()[0].type), eval->classes());
    out.resident_bytes += eval->resident_bytes();
    out.eval = std::move(eval);
  } else if (r.data.validation > 0) {
    const int64_t all = train->size();
    const auto held = static_cast<int64_t>(r.data.validation * static_cast<double>(all));
    if (held == 0 || held == all)
      throw_recipe_error(
          r, {"data.validation"},
          fmt::format("expected a part of {} samples that leaves some for both, got {}", all, r.data.validation));
    out.eval = data::subset(train, all - held, held);
    train = data::subset(train, 0, all - held);
  }
  out.train = std::move(train);
  out.spec.train = out.train->size();
  out.spec.eval = out.eval ? out.eval->size() : 0;
  out.spec.resident_bytes = out.resident_bytes;
  check_fit(r, out.spec);
  return out;
}

DataSpec own_data_spec(const Recipe& r) {
  DataSpec spec;
  spec.sample = {r.data.source == kFloats ? DType::f32 : DType::u8, Shape(r.data.shape)};
  spec.classes = r.data.classes;
  return spec;
}

void refuse_own_data(const Recipe& r) {
  if (is_own_data(r))
    throw UserError(
        fmt::format("data.source: \"{}\" means the arrays of the program that trained this run; only it can "
                    "open them (predictions by the library's Predictor need none)",
                    r.data.source),
        Exit::missing_input);
}

}  // namespace lathe
